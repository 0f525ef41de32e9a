/* fuzz_wire.c - arbitrary bytes as a stream of frames, and as the payload of each message.
 *
 * The input is first read as frames. Since a fuzzer rarely guesses checksums, it is then read as (type, payload) and
 * decoded directly. Whatever is accepted must print, and encode to the very bytes it came from.
 */
#include "base/check.h"
#include "wire/frame.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_accepted(const struct pl_msg *m, const uint8_t *payload, size_t len)
{
    char line[1000];
    size_t printed = pl_msg_print(m, line, sizeof line);
    pl_assert(printed == strlen(line));
    pl_assert(pl_msg_payload_bytes(m) == len);
    uint8_t *frame_bytes = malloc(pl_frame_bytes(m));
    pl_assert(frame_bytes != NULL);
    size_t total = pl_frame_encode(m, frame_bytes, pl_frame_bytes(m));
    struct pl_frame frame;
    pl_assert(pl_frame_parse(frame_bytes, total, &frame, NULL) == PELAGO_OK);
    pl_assert(frame.total == total && frame.type == m->type && frame.payload_len == len);
    pl_assert(len == 0 || memcmp(frame.payload, payload, len) == 0);
    free(frame_bytes);
}

static void decode(uint8_t type, const uint8_t *payload, size_t len)
{
    struct pl_msg m;
    struct pl_error err = {PELAGO_OK, ""};
    enum pelago_status status = pl_msg_decode(type, payload, len, &m, &err);
    pl_assert(status == PELAGO_OK || (status == PELAGO_PROTO && err.text[0] != '\0'));
    if (status == PELAGO_OK)
        check_accepted(&m, payload, len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t at = 0;
    struct pl_frame frame;
    struct pl_error err;
    enum pelago_status status = PELAGO_OK;
    while (status == PELAGO_OK) {
        status = pl_frame_parse(data + at, size - at, &frame, &err);
        if (status == PELAGO_OK)
            decode(frame.type, frame.payload, frame.payload_len);
        else if (status == PELAGO_SHORT)
            pl_assert(frame.need > size - at && frame.need <= PL_FRAME_HEADER_BYTES + PL_FRAME_BYTES_MAX);
        at += frame.total;
    }
    if (size > 0)
        decode(data[0], data + 1, size - 1);
    return 0;
}
