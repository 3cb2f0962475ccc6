// Runs JavaScript (and TypeScript) that goes on from one execution to the next. Orders come as JSON lines from one
// descriptor, reports go as JSON lines to another. Code is evaluated in V8's own REPL mode: `const` may be declared
// again, and `await` may stand at the top level.
'use strict'

const fs = require('fs')
const inspector = require('inspector')
const net = require('net')
const readline = require('readline')
const { isMainThread, parentPort, Worker, workerData } = require('worker_threads')

const GRACE_MS = 200

if (isMainThread) main()
else doorkeeper(workerData)

// A thread beside the user's. It reads the orders, and it can stop a loop that never gives way.
function doorkeeper ({ orders, answered }) {
  // Not by blocking reads: a process does not end while one of its threads is in such a read.
  readline.createInterface({ input: new net.Socket({ fd: orders }) }).on('line', (line) => {
    const order = JSON.parse(line)
    const before = Atomics.load(answered, 0)
    parentPort.postMessage(order)
    if (order.interrupt && Atomics.wait(answered, 0, before, GRACE_MS) === 'timed-out') {
      // Connected only as long as it takes: a process with a debugger waits for it before it ends.
      const session = new inspector.Session()
      session.connectToMainThread()
      session.post('Runtime.terminateExecution')
      session.disconnect()
    }
  })
}

function main () {
  const language = require('./node_language.js')
  const [orders, reports] = process.argv.slice(2, 4).map(Number)
  const answered = new Int32Array(new SharedArrayBuffer(4))
  process.argv.splice(1)
  const report = (said) => writeAll(reports, JSON.stringify(said) + '\n')
  for (const name of ['stdout', 'stderr']) capture(process[name], name, report)
  language.furnish(async (value) => report({ type: 'result', main: false, data: await language.bundle(value) }))
  for (const kind of ['uncaughtException', 'unhandledRejection']) {
    process.on(kind, (problem) => report(language.failure(problem)))
  }

  let leave = () => {}
  const left = Symbol('left')

  async function carryOut ({ code, env, typescript }) {
    const restore = lend(env)
    try {
      const leaving = new Promise((resolve) => { leave = () => resolve(left) })
      const value = await Promise.race([language.evaluate(code, typescript), leaving])
      if (value === left) throw new language.Interrupted()
      if (value !== undefined) report({ type: 'result', main: true, data: await language.bundle(value) })
    } catch (problem) {
      report(language.failure(problem))
    } finally {
      leave = () => {}
      restore()
    }
    report({ type: 'done' })
  }

  let turn = Promise.resolve()
  const door = new Worker(__filename, { workerData: { orders, answered }, stdout: false, stderr: false })
  door.on('exit', () => process.exit(0))
  door.on('message', (order) => {
    if (!order.interrupt) {
      turn = turn.then(() => carryOut(order))
      return
    }
    Atomics.add(answered, 0, 1)
    Atomics.notify(answered, 0)
    leave()
  })
}

// What is written through the process's own streams keeps its place among the results.
function capture (stream, name, report) {
  stream.write = (chunk, encoding, done) => {
    const text = typeof chunk === 'string' ? chunk : Buffer.from(chunk).toString('utf8')
    report({ type: name, text })
    const finished = typeof encoding === 'function' ? encoding : done
    if (finished) process.nextTick(finished)
    return true
  }
}

function writeAll (descriptor, text) {
  let rest = Buffer.from(text)
  while (rest.length) rest = rest.subarray(fs.writeSync(descriptor, rest))
}

function lend (env) {
  const before = Object.keys(env).map((name) => [name, process.env[name]])
  Object.assign(process.env, env)
  return () => {
    for (const [name, value] of before) {
      if (value === undefined) delete process.env[name]
      else process.env[name] = value
    }
  }
}
