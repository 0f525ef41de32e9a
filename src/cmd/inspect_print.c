/* cmd/inspect_print.c - see inspect_print.h. Names come from files: they are cleaned or quoted before they are shown. */
#include "cmd/inspect_print.h"

#include "cmd/text.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

void pl_values_add(struct pl_values *v, const float *values, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        float x = values[i];
        if (!isfinite(x)) {
            v->not_finite++;
            continue;
        }
        bool first = v->count == 0;
        v->min = first || x < v->min ? x : v->min;
        v->max = first || x > v->max ? x : v->max;
        v->sum += (double)x;
        v->squares += (double)x * (double)x;
        v->count++;
    }
}

static double mean_of(const struct pl_values *v)
{
    return v->count > 0 ? v->sum / (double)v->count : 0;
}

static double deviation_of(const struct pl_values *v)
{
    double mean = mean_of(v);
    double variance = v->count > 0 ? v->squares / (double)v->count - mean * mean : 0;
    return variance > 0 ? sqrt(variance) : 0;
}

static void print_quoted(const char *text)
{
    putchar('"');
    for (const unsigned char *p = (const unsigned char *)text; *p != '\0'; p++) {
        if (*p == '"' || *p == '\\')
            printf("\\%c", *p);
        else if (*p < 0x20 || *p == 0x7f)
            printf("\\u%04x", *p);
        else
            putchar(*p);
    }
    putchar('"');
}

void pl_report_begin(struct pl_report *p, const char *kind, const char *path)
{
    p->begun = true;
    if (!p->json) {
        printf("%s %s\n", kind, path);
        return;
    }
    printf("{\"kind\": \"%s\", \"path\": ", kind);
    print_quoted(path);
}

void pl_report_step(struct pl_report *p, uint64_t step, bool has_optimizer)
{
    if (p->json)
        printf(", \"step\": %" PRIu64 ", \"optimizer\": %s", step, has_optimizer ? "true" : "false");
    else
        printf("step         %" PRIu64 "%s\n", step, has_optimizer ? "" : ", without optimizer state");
}

void pl_report_config(struct pl_report *p, const struct pl_model_config *c)
{
    if (!p->json) {
        printf(
            "model        %u layers x %u, %u heads (%u for keys and values) of %u, hidden %u, vocabulary %u, "
            "context %u%s%s\n",
            c->layers, c->width, c->heads, c->kv_heads, c->head_dim, c->hidden, c->vocab, c->context,
            c->tied ? ", tied" : "", c->qk_norm ? ", QK-norm" : "");
        printf("parameters   %" PRIu64 "\n", pl_model_config_params(c));
        return;
    }
    printf(", \"config\": {\"layers\": %u, \"width\": %u, \"heads\": %u, \"kv_heads\": %u, \"head_dim\": %u, "
           "\"hidden\": %u, \"vocab\": %u, \"context\": %u, \"tied\": %s, \"qk_norm\": %s, \"rope_theta\": "
           "%.9g, "
           "\"norm_eps\": %.9g}, \"parameters\": %" PRIu64,
           c->layers, c->width, c->heads, c->kv_heads, c->head_dim, c->hidden, c->vocab, c->context,
           c->tied ? "true" : "false", c->qk_norm ? "true" : "false", (double)c->rope_theta,
           (double)c->norm_eps, pl_model_config_params(c));
}

void pl_report_state(struct pl_report *p, struct pl_bytes json)
{
    const char *text = json.data;
    size_t len = json.len;
    while (len > 0 && text[len - 1] == '\n')
        len--;
    if (p->json)
        printf(", \"state\": %.*s", (int)len, text);
    else if (len > 2) /* more than {} */
        printf("state        %.*s\n", (int)len, text);
}

static void print_line(struct pl_report *p, const struct pl_st_tensor *t, const struct pl_values *v,
                       enum pl_verdict verdict)
{
    char name[PL_ST_NAME_MAX], shape[64];
    memcpy(name, t->name, sizeof name);
    pl_text_clean(name);
    pl_st_shape_text(t, shape, sizeof shape);
    if (p->printed++ == 0)
        printf("\n%-48s %-5s %-15s %10s %10s %10s %10s\n", "tensor", "type", "shape", "mean", "std", "min",
               "max");
    printf("%-48s %-5s %-15s", name, pl_dtype_name(t->dtype), shape);
    if (v->count > 0)
        printf(" %10.3g %10.3g %10.3g %10.3g", mean_of(v), deviation_of(v), (double)v->min, (double)v->max);
    if (v->not_finite > 0)
        printf("  %" PRIu64 " NOT FINITE", v->not_finite);
    printf("%s\n", verdict == PL_VERDICT_DAMAGED ? "  DAMAGED" : "");
}

static void print_json(struct pl_report *p, const struct pl_st_tensor *t, const struct pl_values *v,
                       enum pl_verdict verdict)
{
    char shape[256];
    pl_st_shape_text(t, shape, sizeof shape);
    printf(p->printed++ == 0 ? ", \"tensors\": [\n{\"name\": " : ",\n{\"name\": ");
    print_quoted(t->name);
    printf(", \"dtype\": \"%s\", \"shape\": %s", pl_dtype_name(t->dtype), shape);
    if (v->count > 0)
        printf(", \"mean\": %.9g, \"std\": %.9g, \"min\": %.9g, \"max\": %.9g", mean_of(v), deviation_of(v),
               (double)v->min, (double)v->max);
    printf(", \"not_finite\": %" PRIu64, v->not_finite);
    if (verdict != PL_VERDICT_UNKNOWN)
        printf(", \"damaged\": %s", verdict == PL_VERDICT_DAMAGED ? "true" : "false");
    printf("}");
}

void pl_report_tensor(struct pl_report *p, const struct pl_st_tensor *t, const struct pl_values *v,
                      enum pl_verdict verdict, bool print)
{
    p->tensors++;
    p->parameters += t->count;
    p->not_finite += v->not_finite;
    p->good += verdict == PL_VERDICT_GOOD;
    p->damaged += verdict == PL_VERDICT_DAMAGED;
    if (!print && verdict != PL_VERDICT_DAMAGED)
        return;
    if (p->json)
        print_json(p, t, v, verdict);
    else
        print_line(p, t, v, verdict);
}

void pl_report_end(struct pl_report *p, const struct pl_error *err)
{
    if (!p->begun)
        return;
    const char *verified = err != NULL || p->damaged > 0 ? "damaged" : p->good > 0 ? "good" : "no checksums";
    if (p->json) {
        printf("%s, \"values\": %" PRIu64 ", \"not_finite\": %" PRIu64 ", \"verified\": \"%s\"}\n",
               p->printed > 0 ? "\n]" : "", p->parameters, p->not_finite, verified);
        return;
    }
    printf("\n%" PRIu64 " tensors, %" PRIu64 " values", p->tensors, p->parameters);
    if (p->not_finite > 0)
        printf(", %" PRIu64 " of them not finite", p->not_finite);
    if (p->damaged > 0)
        printf("; DAMAGED: %" PRIu64 " (the checksum differs)\n", p->damaged);
    else if (err == NULL && p->good > 0)
        printf("; verified: all checksums agree\n");
    else
        printf(err == NULL ? "; no checksums to verify\n" : "; ended early\n");
}
