/* cmd/options_file.c - options from a configuration file; see options.h. One table of options says what may stand in the file
 * and on the command line; values are read by the same functions, so both refuse the same mistakes. */
#include "cmd/options.h"

#include "base/check.h"
#include "cmd/cmd.h"
#include "cmd/text.h"

#include <string.h>

static const char config_name[] = "config";

/* The last --config of the command line, found the way pl_options_parse walks it; NULL: none. */
static const char *find_config(const struct pl_options *o, int argc, char **argv)
{
    const char *found = NULL;
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        const char *word = argv[i];
        if (word[0] != '-' || word[1] != '-')
            continue;
        size_t len = strcspn(word + 2, "=");
        const struct pl_option *option = pl_options_find(o, word + 2, len);
        bool joined = word[2 + len] == '=';
        if (option == NULL || option->kind == PL_OPTION_FLAG)
            continue;
        if (strcmp(option->name, config_name) == 0)
            found = joined ? word + 3 + len : i + 1 < argc ? argv[i + 1] : NULL;
        i += joined ? 0 : 1;
    }
    return found;
}

static int set_entry(const struct pl_options *o, const struct pl_conf *conf, const struct pl_conf_entry *e)
{
    const struct pl_option *option = pl_options_find(o, e->key, strlen(e->key));
    struct pl_error err;
    if (option == NULL || strcmp(option->name, config_name) == 0)
        return pl_usage_error(o->command,
                              "%s, line %u: there is no key '%s'; keys are the options of pelago %s --help",
                              conf->file, e->line, pl_text_clip(e->key).at, o->command);
    if (e->is_list && option->kind != PL_OPTION_LIST)
        return pl_usage_error(o->command, "%s, line %u: %s is one value, not a list", conf->file, e->line,
                              option->name);
    if (pl_option_set(option, "", e->value, &err) != PELAGO_OK)
        return pl_usage_error(o->command, "%s, line %u: %s", conf->file, e->line, err.text);
    return PL_EXIT_OK;
}

bool pl_options_parse_with_file(const struct pl_options *o, struct pl_conf *conf, int argc, char **argv,
                                struct pl_words *words, int *exit_code)
{
    struct pl_alloc alloc = pl_alloc_system();
    struct pl_error err;
    const char *path = find_config(o, argc, argv);
    pl_assert(pl_options_find(o, config_name, strlen(config_name)) != NULL);
    pl_conf_init(conf);
    if (path != NULL && path[0] != '\0' && !pl_options_asks_help(argc, argv)) {
        enum pelago_status st = pl_conf_read(conf, &alloc, path, &err);
        if (st != PELAGO_OK) {
            *exit_code = st == PELAGO_INVALID ? pl_refusal(o->command, &err) : pl_failure(o->command, &err);
            return false;
        }
        for (uint32_t i = 0; i < conf->count; i++) {
            *exit_code = set_entry(o, conf, &conf->entries[i]);
            if (*exit_code != PL_EXIT_OK)
                return false;
        }
    }
    return pl_options_parse(o, argc, argv, words, exit_code);
}
