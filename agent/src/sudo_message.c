#include "sudo_message.h"

#include <stdlib.h>
#include <string.h>

size_t sudo_frame_length(const uint8_t head[HEADER_SIZE], uint8_t type) {
    size_t length = get_u32(head);
    if (head[4] != type || length > SUDO_PAYLOAD_MAX || head[6] || head[7]) return 0;
    if (type == SUDO_SIGNAL && length != 4) return 0;
    return HEADER_SIZE + length;
}

bool sudo_order_read(uint8_t *payload, size_t length, struct sudo_order *order) {
    struct reader r = {payload, payload + length, false, false};
    order->argv = read_list(&r);
    order->env = read_list(&r);
    order->user = read_text(&r);
    bool good = reader_done(&r) && !r.bad_text && order->argv.count;
    for (uint32_t i = 0; good && i < order->env.count; i++) {
        good = order->env.items[i][0] != '=' && strchr(order->env.items[i], '=');
    }
    if (!good) sudo_order_drop(order);
    return good;
}

void sudo_order_drop(struct sudo_order *order) {
    free(order->argv.items);
    free(order->env.items);
    *order = (struct sudo_order){0};
}
