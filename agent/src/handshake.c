#include "handshake.h"

#include <string.h>

#include "text.h"

#define PREFIX "/paddock/v1/"

struct span {
    const char *at;
    size_t length;
};

/* In any case. `text` is in small letters; of the C library's own way the locales would come along. */
static bool is(struct span span, const char *text) {
    if (span.length != strlen(text)) return false;
    for (size_t i = 0; i < span.length; i++) {
        char letter = span.at[i];
        if (letter >= 'A' && letter <= 'Z') letter = (char)(letter + 'a' - 'A');
        if (letter != text[i]) return false;
    }
    return true;
}

static bool begins(struct span *span, const char *text) {
    size_t length = strlen(text);
    if (span->length < length || memcmp(span->at, text, length) != 0) return false;
    span->at += length;
    span->length -= length;
    return true;
}

/* A decimal number at the front, of at most `most`. */
static bool number(struct span *span, uint32_t most, uint32_t *value) {
    *value = 0;
    size_t digits = 0;
    while (span->length && *span->at >= '0' && *span->at <= '9' && digits < 6) {
        *value = *value * 10 + (uint32_t)(*span->at - '0');
        span->at++;
        span->length--;
        digits++;
    }
    return digits && *value <= most;
}

static struct span trimmed(struct span span) {
    while (span.length && (*span.at == ' ' || *span.at == '\t')) {
        span.at++;
        span.length--;
    }
    while (span.length && (span.at[span.length - 1] == ' ' || span.at[span.length - 1] == '\t')) span.length--;
    return span;
}

/* /paddock/v1/link, /paddock/v1/dial/<port>, /paddock/v1/accept/<port>/<kind> */
static void read_purpose(struct span path, struct handshake *shake) {
    uint32_t port = 0, kind = 0;
    if (!begins(&path, PREFIX)) return;
    if (is(path, "link")) {
        shake->purpose = PURPOSE_LINK;
        return;
    }
    enum purpose purpose = begins(&path, "dial/") ? PURPOSE_DIAL : begins(&path, "accept/") ? PURPOSE_ACCEPT : PURPOSE_NONE;
    if (purpose == PURPOSE_NONE || !number(&path, 65535, &port) || !port) return;
    if (purpose == PURPOSE_ACCEPT && !(begins(&path, "/") && number(&path, 1, &kind))) return;
    if (path.length) return;
    shake->purpose = purpose;
    shake->port = (uint16_t)port;
    shake->kind = (uint8_t)kind;
}

static bool read_request_line(struct span line, struct handshake *shake) {
    if (!begins(&line, "GET ")) return false;
    const char *space = memchr(line.at, ' ', line.length);
    if (!space) return false;
    struct span path = {line.at, (size_t)(space - line.at)};
    struct span version = {space + 1, line.length - path.length - 1};
    read_purpose(path, shake);
    return is(version, "http/1.1");
}

/* The three that make it a WebSocket are counted by bits. False: it cannot be a header. */
static bool read_header(struct span line, struct handshake *shake, unsigned *seen) {
    const char *colon = memchr(line.at, ':', line.length);
    if (!colon || colon == line.at) return false;
    struct span name = {line.at, (size_t)(colon - line.at)};
    struct span value = trimmed((struct span){colon + 1, line.length - name.length - 1});
    if (is(name, "upgrade")) *seen |= is(value, "websocket") ? 1 : 0;
    else if (is(name, "sec-websocket-version")) *seen |= is(value, "13") ? 2 : 0;
    else if (is(name, "sec-websocket-key") && value.length == WS_KEY_SIZE) {
        memcpy(shake->key, value.at, WS_KEY_SIZE);
        *seen |= 4;
    } else if (is(name, "x-paddock-token")) {
        if (*shake->token || value.length > TOKEN_MAX) return false;
        memcpy(shake->token, value.at, value.length);
        shake->token[value.length] = 0;
    }
    return true;
}

enum handshake_state handshake_read(const char *data, size_t length, struct handshake *shake, size_t *head_length) {
    static const char end[] = "\r\n\r\n";
    *shake = (struct handshake){0};
    const char *stop = memmem(data, length, end, 4);
    if (memchr(data, 0, stop ? (size_t)(stop - data) : length)) return HANDSHAKE_BAD;
    if (!stop) return HANDSHAKE_PART;
    *head_length = (size_t)(stop - data) + 4;
    unsigned seen = 0;
    bool first = true;
    for (const char *at = data; at < stop;) {
        const char *line_end = memmem(at, (size_t)(stop + 2 - at), "\r\n", 2);
        struct span line = {at, (size_t)(line_end - at)};
        if (!(first ? read_request_line(line, shake) : read_header(line, shake, &seen))) return HANDSHAKE_BAD;
        first = false;
        at = line_end + 2;
    }
    shake->upgrade = seen == 7;
    return first ? HANDSHAKE_BAD : HANDSHAKE_WHOLE;
}
