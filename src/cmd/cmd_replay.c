/* cmd/cmd_replay.c - pelago replay: the recorded events of a syncer's core, stepped again. The same events must lead to the
 * same effects; where an assertion stopped the syncer, it stops here, too. */
#include "cmd/cmd.h"

#include "cmd/options.h"
#include "cmd/text.h"
#include "host/recorder.h"

#include <inttypes.h>

static const char command[] = "replay";

static void print_line(void *user, const char *text)
{
    (void)user;
    printf("%s\n", text);
}

static void print_report(const char *path, const struct pl_replay_report *r)
{
    printf("%s: %" PRIu64 " events, %" PRIu64 " messages and %" PRIu64
           " records of shard %u (%u fragments) in %.3f s: the same effects again%s\n",
           pl_text_clip(path).at, r->events, r->messages, r->records, r->shard, r->fragments,
           (double)(r->last_ns - r->first_ns) * 1e-9, r->cut ? "; the file ends inside an entry" : "");
}

int pl_cmd_replay(int argc, char **argv)
{
    struct pl_alloc alloc = pl_alloc_system();
    struct pl_replay_report report;
    struct pl_error err;
    bool trace = false;
    const struct pl_option table[] = {
        {"trace", NULL, "print every event and what came of it", PL_OPTION_FLAG, &trace, 0, 0},
    };
    const struct pl_options options = {
        command, "FILE [OPTION...]",
        "Steps the protocol through a file that pelago syncer --record wrote, and "
        "compares every effect.\nLeaves with 1 where one differs.",
        table, sizeof table / sizeof table[0]};
    struct pl_words words;
    int code;
    if (!pl_options_parse(&options, argc, argv, &words, &code))
        return code;
    if (words.count != 1)
        return pl_usage_error(command, "expected one file, written by pelago syncer --record");
    if (pl_recorder_run(&alloc, words.at[0], trace ? print_line : NULL, NULL, &report, &err) != PELAGO_OK)
        return pl_failure(command, &err);
    print_report(words.at[0], &report);
    return PL_EXIT_OK;
}
