/* cmd/cmd_invite.c - pelago invite: a token for the next one who takes part. */
#include "cmd/cmd.h"

#include "cmd/cluster_home.h"
#include "cmd/options.h"
#include "cmd/text.h"

#include <string.h>

static const char command[] = "invite";
static const uint64_t patience_ns = 10 * PL_SEC;

static bool role_of_name(const char *name, enum pl_role *role)
{
    *role = strcmp(name, "learner") == 0    ? PL_ROLE_LEARNER
            : strcmp(name, "shard") == 0    ? PL_ROLE_SHARD
            : strcmp(name, "operator") == 0 ? PL_ROLE_OPERATOR
                                            : PL_ROLE_NONE;
    return *role != PL_ROLE_NONE;
}

static enum pelago_status ask(const char *folder, const struct pl_question *q, struct pl_buf *answer,
                              struct pl_error *err)
{
    struct pl_operator who;
    PL_TRY(pl_operator_load(&who, folder, err));
    return pl_operator_ask(&who, q, patience_ns, answer, err);
}

static int invite(const char *folder, const struct pl_question *q, bool bare)
{
    struct pl_alloc alloc = pl_alloc_system();
    struct pl_buf answer;
    struct pl_error err;
    pl_buf_init(&answer, &alloc, PL_TOKEN_TEXT_MAX);
    enum pelago_status st = ask(folder, q, &answer, &err);
    if (st == PELAGO_OK && bare)
        printf("%.*s\n", (int)answer.len, (const char *)answer.data);
    else if (st == PELAGO_OK)
        printf("pelago %s --join %.*s\n",
               q->role == PL_ROLE_SHARD ? "syncer --shard N --dir FOLDER" : "learner", (int)answer.len,
               (const char *)answer.data);
    pl_buf_release(&answer);
    return st == PELAGO_OK ? PL_EXIT_OK : pl_failure(command, &err);
}

int pl_cmd_invite(int argc, char **argv)
{
    uint64_t uses = 1, valid_ns = 0;
    const char *role = "learner";
    bool bare = false;
    const struct pl_option table[] = {
        {"uses", "N", "how many may come with it (default: 1)", PL_OPTION_U64, &uses, 1, PL_LEARNERS_MAX},
        {"valid", "TIME", "for how long, such as 24h or 7d (default: until the run ends)", PL_OPTION_TIME,
         &valid_ns, PL_SEC, 0},
        {"role", "NAME", "learner (default), shard or operator", PL_OPTION_TEXT, &role, 0, 0},
        {"bare", NULL, "print the token alone", PL_OPTION_FLAG, &bare, 0, 0},
    };
    const struct pl_options options = {
        command, "FOLDER [OPTION...]",
        "Makes a token and prints the line that its holder types. FOLDER is that of the syncer, which must "
        "be running.\n"
        "Whoever has the token can join: send it as you would send a password.",
        table, sizeof table / sizeof table[0]};
    struct pl_words words;
    struct pl_question q = {.what = PL_ASK_INVITE};
    int code;
    if (!pl_options_parse(&options, argc, argv, &words, &code))
        return code;
    if (words.count != 1)
        return pl_usage_error(command, "expected one folder, that of the syncer");
    if (!role_of_name(role, &q.role))
        return pl_usage_error(command, "--role is '%s', expected learner, shard or operator",
                              pl_text_clip(role).at);
    q.uses = uses;
    q.seconds = valid_ns / PL_SEC;
    return invite(words.at[0], &q, bare);
}
