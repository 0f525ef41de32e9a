/* cmd/bench_link.c - pelago bench link: the speed of one connection, TLS and all, beside what the machine could do.
 *
 * Alone it runs on loopback, two processes, in turns with `openssl speed` (the cipher by itself, per second of processor)
 * and iperf3 (the same sockets without TLS), where these are installed. With --listen and --to it is two commands, for two
 * machines or two network namespaces; --keys is a file that both read.
 */
#include "cmd/bench_link.h"

#include "cmd/cmd.h"
#include "cmd/options.h"
#include "cmd/text.h"
#include "host/link_bench.h"
#include "net/address.h"

#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static const char link_command[] = "bench link";
static const double loopback_bar = 0.8;

struct call {
    const char *listen, *to, *keys;
    uint32_t streams, frame;
    double seconds;
    bool json, quick;
};

/* --- two commands --- */

static enum pelago_status save_keys(const char *path, const struct pl_credentials *c, struct pl_error *err)
{
    static uint8_t bytes[16 << 10];
    size_t len = pl_credentials_encode(c, bytes, sizeof bytes);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    bool good = fd >= 0 && write(fd, bytes, len) == (ssize_t)len;
    if (fd >= 0 && close(fd) != 0)
        good = false;
    return good ? PELAGO_OK : pl_fail(err, PELAGO_IO, "the keys cannot be written to %s", path);
}

static enum pelago_status load_keys(const char *path, struct pl_credentials *c, struct pl_error *err)
{
    static uint8_t bytes[16 << 10];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t len = fd >= 0 ? read(fd, bytes, sizeof bytes) : -1;
    if (fd >= 0)
        (void)close(fd);
    if (len < 0)
        return pl_fail(err, PELAGO_IO, "the keys cannot be read from %s: start the side that listens first",
                       path);
    return pl_credentials_decode(c, bytes, (size_t)len, err);
}

static void say_port(void *user, uint32_t port)
{
    (void)user;
    printf("listening on port %u\n", port);
    (void)fflush(stdout);
}

static int run_listen(const struct call *call)
{
    struct pl_credentials shard, learner;
    struct pl_error err;
    if (pl_link_bench_credentials(&shard, &learner, &err) != PELAGO_OK ||
        save_keys(call->keys, &learner, &err) != PELAGO_OK ||
        pl_link_bench_serve(&shard, call->listen, say_port, NULL, &err) != PELAGO_OK)
        return pl_failure(link_command, &err);
    return PL_EXIT_OK;
}

static double rate(const struct pl_link_result *r)
{
    return (double)r->bytes / ((double)r->span_ns * 1e-9);
}

static int run_to(const struct call *call)
{
    struct pl_credentials learner;
    struct pl_link_result r;
    struct pl_error err;
    struct pl_link_bench b = {&learner, call->to, call->streams, call->frame, call->seconds};
    if (load_keys(call->keys, &learner, &err) != PELAGO_OK || pl_link_bench_send(&b, &r, &err) != PELAGO_OK)
        return pl_failure(link_command, &err);
    double gb = (double)r.bytes * 1e-9;
    printf(call->json ? "{\"row\": \"link\", \"what\": \"to\", \"mbit_per_s\": %.3f, \"streams\": %u, "
                        "\"rtt_ms\": %.3f, \"sender_cpu_s_per_gb\": %.3f}\n"
                      : "%.3f Mbit/s over %u streams, round trip %.3f ms, sender %.3f s of processor a GB\n",
           rate(&r) * 8e-6, r.streams, (double)r.rtt_ns * 1e-6, r.cpu_s / gb);
    return PL_EXIT_OK;
}

/* --- loopback --- */

struct figures {
    double ours, aes, iperf3;    /* bytes a second; 0: not there */
    double sender_s, receiver_s; /* of processor, a byte */
};

static void tell_port(void *user, uint32_t port)
{
    const int *fd = user;
    if (write(*fd, &port, sizeof port) != (ssize_t)sizeof port)
        _exit(PL_EXIT_FAILED);
}

static double cpu_of_children(void)
{
    struct rusage u;
    (void)getrusage(RUSAGE_CHILDREN, &u);
    return (double)u.ru_utime.tv_sec + (double)u.ru_stime.tv_sec +
           1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

/* The receiver is a process of its own, as it is in life. */
static enum pelago_status measure_ours(const struct call *call, struct figures *f, struct pl_error *err)
{
    struct pl_credentials shard, learner;
    struct pl_link_result r;
    int ends[2];
    uint32_t port = 0;
    char address[PL_ADDRESS_MAX];
    PL_TRY(pl_link_bench_credentials(&shard, &learner, err));
    if (pipe(ends) != 0)
        return pl_fail(err, PELAGO_IO, "no pipe between two processes");
    (void)fflush(stdout);
    double before = cpu_of_children();
    pid_t pid = fork();
    if (pid == 0)
        _exit(pl_link_bench_serve(&shard, "127.0.0.1:0", tell_port, &ends[1], err) == PELAGO_OK ? 0 : 1);
    (void)close(ends[1]);
    bool told = pid > 0 && read(ends[0], &port, sizeof port) == (ssize_t)sizeof port;
    (void)close(ends[0]);
    (void)snprintf(address, sizeof address, "127.0.0.1:%u", port);
    struct pl_link_bench b = {&learner, address, call->streams, call->frame, call->seconds};
    enum pelago_status st =
        told ? pl_link_bench_send(&b, &r, err) : pl_fail(err, PELAGO_IO, "the receiver did not start");
    if (pid > 0)
        (void)waitpid(pid, NULL, 0);
    if (st == PELAGO_OK && rate(&r) > f->ours) {
        f->ours = rate(&r);
        f->sender_s = r.cpu_s / (double)r.bytes;
        f->receiver_s = (cpu_of_children() - before) / (double)r.bytes;
    }
    return st;
}

/* `openssl speed` prints "+F:number:name:bytes a second"; it counts seconds of processor. */
static double measure_aes(void)
{
    char line[256];
    double found = 0, n;
    FILE *f = popen("openssl speed -mr -evp aes-128-gcm -bytes 16384 -seconds 1 2>/dev/null", "r");
    while (f != NULL && fgets(line, sizeof line, f) != NULL)
        if (sscanf(line, "+F:%*d:%*[^:]:%lf", &n) == 1)
            found = n;
    if (f != NULL)
        (void)pclose(f);
    return found;
}

static double measure_iperf3(double seconds)
{
    char command[256];
    unsigned port = 20000 + (unsigned)getpid() % 10000;
    (void)snprintf(command, sizeof command,
                   "iperf3 -s -1 -D -B 127.0.0.1 -p %u >/dev/null 2>&1 && sleep 0.2 && "
                   "iperf3 -c 127.0.0.1 -p %u -t %.0f -J 2>/dev/null",
                   port, port, seconds < 1 ? 1 : seconds);
    FILE *f = popen(command, "r");
    json_t *root = f != NULL ? json_loadf(f, 0, NULL) : NULL;
    json_t *sum = json_object_get(json_object_get(root, "end"), "sum_received");
    double found = json_number_value(json_object_get(sum, "bits_per_second")) / 8;
    json_decref(root);
    if (f != NULL)
        (void)pclose(f);
    return found;
}

/* One core a side that does what iperf3 does and the cipher as well, and nothing else. */
static double arithmetic_limit(const struct figures *f)
{
    return f->aes > 0 && f->iperf3 > 0 ? 1 / (1 / f->aes + 1 / f->iperf3) : 0;
}

/* False where the bar was missed. */
static bool print_loopback(const struct call *call, const struct figures *f)
{
    double share = f->aes > 0 ? f->ours / f->aes : 0;
    bool missed = f->aes > 0 && !call->quick && share < loopback_bar;
    double of_iperf3 = f->iperf3 > 0 ? f->ours / f->iperf3 : 0;
    double aes_s = f->aes > 0 ? 1e9 / f->aes : 0, limit = arithmetic_limit(f);
    double limit_share = f->aes > 0 ? limit / f->aes : 0;
    const char *verdict = f->aes == 0   ? "not measured"
                          : call->quick ? "not judged"
                          : missed      ? "miss"
                                        : "pass";
    if (call->json) {
        printf("{\"row\": \"link\", \"what\": \"loopback\", \"streams\": %u, \"gb_per_s\": %.3f, "
               "\"aes_gb_per_s\": %.3f, \"share\": %.3f, \"bar\": %.2f, \"verdict\": \"%s\", "
               "\"iperf3_gb_per_s\": %.3f, \"share_of_iperf3\": %.3f, \"limit_gb_per_s\": %.3f, "
               "\"limit_share\": %.3f, ",
               call->streams, f->ours * 1e-9, f->aes * 1e-9, share, loopback_bar, verdict, f->iperf3 * 1e-9,
               of_iperf3, limit * 1e-9, limit_share);
        printf(
            "\"sender_cpu_s_per_gb\": %.3f, \"receiver_cpu_s_per_gb\": %.3f, \"aes_cpu_s_per_gb\": %.3f}\n",
            f->sender_s * 1e9, f->receiver_s * 1e9, aes_s);
        return !missed;
    }
    printf("loopback, TLS on: %.2f GB/s; AES-128-GCM alone %.2f GB/s a core (%.0f%%, bar %.0f%%: %s)\n",
           f->ours * 1e-9, f->aes * 1e-9, share * 100, loopback_bar * 100, verdict);
    if (f->iperf3 > 0)
        printf("iperf3 without TLS: %.2f GB/s (%.0f%%)\n", f->iperf3 * 1e-9, of_iperf3 * 100);
    if (limit > 0)
        printf("one core a side for the cipher and for what iperf3 does: at most %.2f GB/s (%.0f%%)\n",
               limit * 1e-9, limit_share * 100);
    printf("processor seconds a GB: sender %.2f, receiver %.2f, of which AES %.2f each\n", f->sender_s * 1e9,
           f->receiver_s * 1e9, aes_s);
    return !missed;
}

static int run_loopback(const struct call *call)
{
    const unsigned rounds = call->quick ? 1 : 2;
    struct figures f = {0};
    struct pl_error err;
    for (unsigned i = 0; i < rounds; i++) {
        double aes = measure_aes(), iperf3 = measure_iperf3(call->seconds);
        f.aes = aes > f.aes ? aes : f.aes;
        f.iperf3 = iperf3 > f.iperf3 ? iperf3 : f.iperf3;
        if (measure_ours(call, &f, &err) != PELAGO_OK)
            return pl_failure(link_command, &err);
    }
    return print_loopback(call, &f) ? PL_EXIT_OK : PL_EXIT_FAILED;
}

int pl_cmd_bench_link(int argc, char **argv)
{
    struct call call = {.streams = 1, .frame = 1 << 20, .seconds = 2};
    const struct pl_option table[] = {
        {"listen", "HOST:PORT", "take the bytes of one sender, then end", PL_OPTION_TEXT, &call.listen, 0, 0},
        {"to", "HOST:PORT", "send to a pelago bench link --listen", PL_OPTION_TEXT, &call.to, 0, 0},
        {"keys", "FILE", "written by --listen and read by --to: who they are to each other", PL_OPTION_TEXT,
         &call.keys, 0, 0},
        {"streams", "N", "TLS connections that carry the one (default: 1)", PL_OPTION_U32, &call.streams, 1,
         PL_CONN_STREAMS_MAX},
        {"frame", "BYTES", "payload of a frame (default: 1 MiB)", PL_OPTION_U32, &call.frame, 1,
         PL_CHUNK_BYTES_MAX},
        {"seconds", "S", "how long to send (default: 2)", PL_OPTION_FLOAT, &call.seconds, 0, 0},
        {"short", NULL, "on loopback: one round, and the bar is not judged", PL_OPTION_FLAG, &call.quick, 0,
         0},
        {"json", NULL, "print one line of JSON", PL_OPTION_FLAG, &call.json, 0, 0},
    };
    const struct pl_options options = {
        link_command, "[OPTION...]",
        "Sends as fast as one connection takes it and says how fast that was, at the receiver. Without\n"
        "--listen and --to it does so on loopback, in turns with openssl speed and iperf3, and leaves with "
        "1\n"
        "where it misses its bar.",
        table, sizeof table / sizeof table[0]};
    struct pl_words words;
    struct pl_address address;
    struct pl_error err;
    int code;
    if (!pl_options_parse(&options, argc, argv, &words, &code))
        return code;
    if (words.count > 0)
        return pl_usage_error(link_command, "unexpected '%s'", pl_text_clip(words.at[0]).at);
    if (call.listen != NULL && call.to != NULL)
        return pl_usage_error(link_command, "--listen and --to are two commands: give one of them");
    if ((call.listen != NULL || call.to != NULL) && call.keys == NULL)
        return pl_usage_error(link_command, "--keys is needed: a file that both sides can read");
    if (!(call.seconds > 0 && call.seconds <= 3600))
        return pl_usage_error(link_command, "--seconds is a number above 0 and up to 3600");
    const char *given = call.listen != NULL ? call.listen : call.to;
    if (given != NULL && pl_address_parse(given, &address, &err) != PELAGO_OK)
        return pl_refusal(link_command, &err);
    return call.listen != NULL ? run_listen(&call) : call.to != NULL ? run_to(&call) : run_loopback(&call);
}
