'use strict';
// The server's side of a WebSocket (RFC 6455): as much of it as the live view needs, without a package.
const crypto = require('node:crypto');

const GUID = '258EAFA5-E914-47DA-95CA-C5AB0DC85B11';
const MOST = 64 << 10; // what a viewer sends is small
const TEXT = 1,
  BINARY = 2,
  CLOSE = 8,
  PING = 9,
  PONG = 10;

// The connection as a Socket, or null where it does not ask for one in a proper way.
function accept(request, socket, head) {
  const key = request.headers['sec-websocket-key'];
  if (!key || request.headers['sec-websocket-version'] !== '13') {
    socket.end('HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n');
    return null;
  }
  const proof = crypto
    .createHash('sha1')
    .update(key + GUID)
    .digest('base64');
  socket.write(
    `HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ${proof}\r\n\r\n`,
  );
  return new Socket(socket, head);
}

class Socket {
  constructor(socket, head) {
    this.socket = socket;
    this.waiting = Buffer.from(head);
    this.onText = () => undefined;
    this.onEnd = () => undefined;
    socket.setNoDelay(true);
    socket.on('data', (data) => this.receive(data));
    socket.on('error', () => socket.destroy());
    socket.on('close', () => this.onEnd());
  }

  get behind() {
    return this.socket.writableLength;
  }

  send(data) {
    const body = Buffer.isBuffer(data) ? data : Buffer.from(JSON.stringify(data));
    this.frame(Buffer.isBuffer(data) ? BINARY : TEXT, body);
  }

  frame(kind, body) {
    if (this.socket.destroyed) return;
    let head;
    if (body.length < 126) head = Buffer.from([0x80 | kind, body.length]);
    else if (body.length < 65_536) {
      head = Buffer.from([0x80 | kind, 126, 0, 0]);
      head.writeUInt16BE(body.length, 2);
    } else {
      head = Buffer.alloc(10);
      head.set([0x80 | kind, 127]);
      head.writeBigUInt64BE(BigInt(body.length), 2);
    }
    this.socket.write(Buffer.concat([head, body]));
  }

  receive(data) {
    this.waiting = Buffer.concat([this.waiting, data]);
    for (let frame = this.next(); frame; frame = this.next()) this.take(frame);
  }

  // The next whole frame. A client's are masked, and none of ours is long or in parts.
  next() {
    const data = this.waiting;
    if (data.length < 2) return null;
    let size = data[1] & 0x7f;
    let at = 2;
    if (size === 126) {
      if (data.length < 4) return null;
      size = data.readUInt16BE(2);
      at = 4;
    }
    if (size === 127 || size > MOST || !(data[1] & 0x80) || !(data[0] & 0x80)) {
      this.socket.destroy();
      return null;
    }
    if (data.length < at + 4 + size) return null;
    const mask = data.subarray(at, at + 4);
    const body = Buffer.from(data.subarray(at + 4, at + 4 + size));
    for (let i = 0; i < size; i += 1) body[i] ^= mask[i & 3];
    this.waiting = data.subarray(at + 4 + size);
    return { kind: data[0] & 0x0f, body };
  }

  take({ kind, body }) {
    if (kind === CLOSE) {
      this.frame(CLOSE, body.subarray(0, 2));
      this.socket.end();
    } else if (kind === PING) this.frame(PONG, body);
    else if (kind === TEXT) this.onText(body.toString('utf8'));
  }
}

module.exports = { accept };
