/* Whoever opened this pipe is the server, but its frames are checked like anybody's: what breaks the rules ends all of it.
   Each side may have at most a window of bytes under way on each channel, so one that nobody reads blocks no other. */
#include "trunk.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "loop.h"
#include "privileges.h"
#include "text.h"

enum { OUT_ROOM = 1 << 18, OUT_BUSY = 1 << 17, IN_ROOM = 1 << 16, TURNS = 8, QUIET_S = 60, MAX_QUIET_S = 3600 };

struct channel {
    struct source source; /* out of the loop while there is nothing to wait for */
    int fd;
    uint16_t number;
    uint32_t credit;  /* what the server takes yet */
    uint32_t allowed; /* what it may send yet */
    uint32_t taken;   /* what went inside and was not allowed anew */
    uint8_t *held;    /* what the inside did not take at once */
    size_t held_at, held_length;
    bool end_received, end_done, end_sent;
};

static struct channel *channels[TRUNK_CHANNELS];
static bool leaving[TRUNK_CHANNELS]; /* closed from here, and not yet from there */
static struct source input, output;
static const char *door;
static uint8_t in[IN_ROOM], out[OUT_ROOM];
static size_t in_length, out_length;
static bool stalled, over;

static void settle(struct channel *channel);
static void go_on(void);

static uint32_t get_number(const uint8_t *at) {
    return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static void put_number32(uint8_t *at, uint32_t number) {
    for (int i = 0; i < 4; i++) at[i] = (uint8_t)(number >> 8 * i);
}

/* Nothing more is taken in, from either side, until some of it is gone. */
static bool busy(void) {
    if (out_length > OUT_BUSY) stalled = true;
    return out_length > OUT_BUSY;
}

static void flush(void) {
    size_t done = 0;
    while (done < out_length) {
        ssize_t put = write(output.fd, out + done, out_length - done);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0 && errno != EAGAIN) over = true;
        if (put <= 0) break;
        done += (size_t)put;
    }
    out_length -= done;
    memmove(out, out + done, out_length);
    loop_change(&output, out_length ? EPOLLOUT : 0);
}

/* There is always room: who is busy takes nothing in that would have to be answered. */
static void say(uint16_t number, enum trunk_kind kind, const uint8_t *data, uint32_t length) {
    if (out_length + TRUNK_HEAD + length > OUT_ROOM) {
        over = true;
        return;
    }
    uint8_t *at = out + out_length;
    at[0] = (uint8_t)number;
    at[1] = (uint8_t)(number >> 8);
    at[2] = (uint8_t)kind;
    at[3] = 0;
    put_number32(at + 4, length);
    if (length) memcpy(at + TRUNK_HEAD, data, length);
    out_length += TRUNK_HEAD + length;
}

static void say_number(uint16_t number, enum trunk_kind kind, uint32_t value) {
    uint8_t text[4];
    put_number32(text, value);
    say(number, kind, text, sizeof text);
}

static void forget(struct channel *channel) {
    loop_remove(&channel->source);
    close(channel->fd);
    channels[channel->number] = NULL;
    free(channel->held);
    channel->held = NULL;
    loop_free(channel);
}

static void hang_up(struct channel *channel) {
    say(channel->number, TRUNK_CLOSE, NULL, 0);
    leaving[channel->number] = true;
    forget(channel);
}

/* What went inside may come anew; told in large steps. */
static void allow_more(struct channel *channel) {
    if (channel->taken < TRUNK_WINDOW / 4 || channel->end_received) return;
    say_number(channel->number, TRUNK_WINDOW_MORE, channel->taken);
    channel->allowed += channel->taken;
    channel->taken = 0;
}

/* Answers how much the inside took; -1 when it takes nothing any more. */
static ssize_t pass(struct channel *channel, const uint8_t *data, size_t length) {
    size_t done = 0;
    while (done < length) {
        ssize_t put = send(channel->fd, data + done, length - done, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0 && errno != EAGAIN) return -1;
        if (put < 0) break;
        done += (size_t)put;
    }
    channel->taken += (uint32_t)done;
    return (ssize_t)done;
}

static bool pass_held(struct channel *channel) {
    if (!channel->held) return true;
    ssize_t done = pass(channel, channel->held + channel->held_at, channel->held_length);
    if (done < 0) return false;
    channel->held_at += (size_t)done;
    channel->held_length -= (size_t)done;
    if (!channel->held_length) {
        free(channel->held);
        channel->held = NULL;
        channel->held_at = 0;
    }
    allow_more(channel);
    return true;
}

static bool hold(struct channel *channel, const uint8_t *data, size_t length) {
    uint8_t *kept = malloc(channel->held_length + length);
    if (!kept) return false;
    if (channel->held_length) memcpy(kept, channel->held + channel->held_at, channel->held_length);
    memcpy(kept + channel->held_length, data, length);
    free(channel->held);
    channel->held = kept;
    channel->held_at = 0;
    channel->held_length += length;
    return true;
}

/* False: the channel is of no use any more. */
static bool take_data(struct channel *channel, const uint8_t *data, size_t length) {
    ssize_t done = channel->held ? 0 : pass(channel, data, length);
    if (done < 0 || ((size_t)done < length && !hold(channel, data + done, length - (size_t)done))) return false;
    allow_more(channel);
    return true;
}

static bool read_inside(struct channel *channel) {
    for (int i = 0; i < TURNS && channel->credit && !busy() && !channel->end_sent; i++) {
        uint32_t most = channel->credit < TRUNK_PIECE ? channel->credit : TRUNK_PIECE;
        ssize_t got = read(channel->fd, scratch(), most);
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) return true;
        if (got < 0) return false;
        if (got == 0) {
            channel->end_sent = true;
            say(channel->number, TRUNK_END, NULL, 0);
            return true;
        }
        channel->credit -= (uint32_t)got;
        say(channel->number, TRUNK_DATA, scratch(), (uint32_t)got);
    }
    return true;
}

static void on_channel(struct source *source, uint32_t events) {
    struct channel *channel = owner_of(source, struct channel, source);
    bool good = !(events & EPOLLERR);
    if (good && events & EPOLLOUT) good = pass_held(channel);
    if (good && events & (EPOLLIN | EPOLLHUP)) good = read_inside(channel);
    if (good) settle(channel);
    else hang_up(channel);
    go_on();
}

/* A hang-up is reported for ever: who cannot go on is taken out of the loop until he can. */
static void settle(struct channel *channel) {
    if (channel->end_received && !channel->end_done && !channel->held) {
        shutdown(channel->fd, SHUT_WR);
        channel->end_done = true;
    }
    if (channel->end_done && channel->end_sent) {
        hang_up(channel);
        return;
    }
    uint32_t wanted = channel->held ? EPOLLOUT : 0;
    if (channel->credit && !channel->end_sent && !busy()) wanted |= EPOLLIN;
    if (!wanted) loop_remove(&channel->source);
    else if (channel->source.fd >= 0) loop_change(&channel->source, wanted);
    else if (!loop_add(&channel->source, channel->fd, wanted, on_channel)) hang_up(channel);
}

static int connect_door(void) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(door) >= sizeof address.sun_path) return -1;
    put_text(address.sun_path, door);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) == 0) return fd;
    if (fd >= 0) close(fd);
    return -1;
}

static bool open_channel(uint16_t number) {
    if (channels[number] || leaving[number]) return false;
    struct channel *channel = calloc(1, sizeof *channel);
    int fd = channel ? connect_door() : -1;
    if (fd < 0) {
        free(channel);
        say(number, TRUNK_CLOSE, NULL, 0);
        leaving[number] = true;
        return true;
    }
    *channel = (struct channel){.source = {.fd = -1}, .fd = fd, .number = number};
    channel->credit = channel->allowed = TRUNK_WINDOW;
    channels[number] = channel;
    settle(channel);
    return true;
}

static bool close_channel(uint16_t number) {
    if (leaving[number]) {
        leaving[number] = false;
        return true;
    }
    if (!channels[number]) return false;
    say(number, TRUNK_CLOSE, NULL, 0);
    forget(channels[number]);
    return true;
}

static bool grant(struct channel *channel, uint32_t more) {
    if (more > TRUNK_WINDOW || channel->credit + more > TRUNK_WINDOW) return false;
    channel->credit += more;
    settle(channel);
    return true;
}

/* Of a channel that is there. False: the rules are broken. */
static bool take_for(struct channel *channel, uint8_t kind, const uint8_t *data, uint32_t length) {
    switch (kind) {
        case TRUNK_DATA:
            if (!length || length > channel->allowed || channel->end_received) return false;
            channel->allowed -= length;
            if (take_data(channel, data, length)) settle(channel);
            else hang_up(channel);
            return true;
        case TRUNK_END:
            if (length || channel->end_received) return false;
            channel->end_received = true;
            settle(channel);
            return true;
        case TRUNK_WINDOW_MORE: return length == 4 && grant(channel, get_number(data));
        default: return false;
    }
}

static bool take(uint16_t number, uint8_t kind, const uint8_t *data, uint32_t length) {
    if (number >= TRUNK_CHANNELS) return false;
    if (kind == TRUNK_PING) return !length && !number;
    if (kind == TRUNK_OPEN) return !length && open_channel(number);
    if (kind == TRUNK_CLOSE) return !length && close_channel(number);
    if (channels[number]) return take_for(channels[number], kind, data, length);
    /* Sent before it was known that we have hung up. */
    return leaving[number] && (kind == TRUNK_DATA || kind == TRUNK_END || kind == TRUNK_WINDOW_MORE);
}

/* Whole frames only. False: the rules are broken. */
static bool take_frames(void) {
    size_t at = 0;
    bool good = true;
    while (good && !busy() && in_length - at >= TRUNK_HEAD) {
        const uint8_t *head = in + at;
        uint32_t length = get_number(head + 4);
        good = length <= TRUNK_PIECE && !head[3];
        if (!good || in_length - at - TRUNK_HEAD < length) break;
        good = take((uint16_t)(head[0] | head[1] << 8), head[2], head + TRUNK_HEAD, length);
        at += TRUNK_HEAD + length;
    }
    in_length -= at;
    memmove(in, in + at, in_length);
    return good;
}

static void read_input(void) {
    for (int i = 0; i < TURNS && !over; i++) {
        over = !take_frames();
        if (over || busy()) return; /* else less than a frame is left, and there is room */
        ssize_t got = read(input.fd, in + in_length, IN_ROOM - in_length);
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
        if (got > 0) in_length += (size_t)got;
        over = got <= 0 || !take_frames();
    }
}

/* At the end of every step: when there is room again, everybody who waited for it goes on. */
static void go_on(void) {
    flush();
    while (stalled && out_length <= OUT_BUSY && !over) {
        stalled = false;
        over = !take_frames();
        for (int i = 0; i < TRUNK_CHANNELS; i++) {
            if (channels[i]) settle(channels[i]);
        }
        flush();
    }
    loop_change(&input, stalled ? 0 : EPOLLIN);
}

static void on_input(struct source *source, uint32_t events) {
    (void)source;
    if (events & EPOLLIN) read_input();
    else over = true;
    go_on();
}

static void on_output(struct source *source, uint32_t events) {
    (void)source;
    if (events & EPOLLERR) over = true;
    go_on();
}

bool trunk_start(int from, int to, const char *path) {
    door = path;
    stalled = over = false;
    in_length = out_length = 0;
    memset(leaving, 0, sizeof leaving);
    for (int i = 0; i < 2; i++) {
        int fd = i ? to : from, flags = fcntl(fd, F_GETFL);
        if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0) return false;
    }
    if (!loop_add(&input, from, EPOLLIN, on_input) || !loop_add(&output, to, 0, on_output)) return false;
    say_number(0, TRUNK_HELLO, TRUNK_VERSION);
    flush();
    return !over;
}

bool trunk_over(void) { return over; }

void trunk_end(void) {
    for (int i = 0; i < TRUNK_CHANNELS; i++) {
        if (channels[i]) forget(channels[i]);
    }
    loop_remove(&input);
    loop_remove(&output);
}

/* It only carries bytes: no capability is needed for that, nor may anybody inside look into it. */
static bool confine(const char *filter) {
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || !capabilities_clear()) return false;
    if (!filter) return true;
    int fd = open(filter, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    bool done = fd >= 0 && filters_read(fd) && child_filter_install();
    if (fd >= 0) close(fd);
    return done;
}

static int patience_ms(const char *text) {
    uint64_t seconds = QUIET_S;
    bool good = !text || (take_number(&text, &seconds) && !*text && seconds > 0 && seconds <= MAX_QUIET_S);
    return good ? (int)seconds * 1000 : -1;
}

int trunk_main(int argc, char **argv) {
    int64_t woken;
    int quiet = 0, patience = patience_ms(argc > 4 ? argv[4] : NULL);
    signal(SIGPIPE, SIG_IGN);
    if (patience < 0 || !confine(argc > 3 && strcmp(argv[3], "-") != 0 ? argv[3] : NULL)) return 1;
    if (!loop_start() || !trunk_start(0, 1, argv[2])) return 1;
    /* The server pings more often; but some engines keep our input open when it has long gone, and so have they. Twice,
       since a freeze ends any wait at once. */
    while (!over && quiet < 2) quiet = loop_turn(patience, &woken) ? 0 : quiet + 1;
    return over ? 0 : 1;
}
