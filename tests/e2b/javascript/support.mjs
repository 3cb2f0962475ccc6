// What the tests share: a register of tests, the SDK whose calls are written down, and sandboxes.
//
// `speak(Sandbox)` behaves as the class does. Objects that have methods themselves are wrapped in turn. A method that
// an older SDK does not have skips the test; the newest must have all of them.

export const tests = []
export const calls = []
const newest = Boolean(process.env.PADDOCK_TEST_NEWEST)
const TALKERS = [
  'CommandHandle', 'Commands', 'Filesystem', 'Git', 'Pty', 'Sandbox', 'SandboxPaginator', 'Secret', 'SecretPaginator',
  'SnapshotPaginator', 'Template', 'TemplateBase', 'Volume', 'WatchHandle',
]

export class Skip extends Error {}

export function test(name, run) {
  tests.push({ name, run })
}

export function speak(target) {
  return new Proxy(target, {
    get(_, property) {
      if (property === RAW) return target
      if (typeof property === 'symbol' || property === 'then' || property === 'constructor') return target[property]
      if (!(property in target) && !(property in DATA)) throw missing(`${label(target)}.${property}`)
      const value = target[property]
      if (typeof value !== 'function' || isClass(value)) return wrap(value)
      return (...words) => call(`${label(target)}.${snake(property)}`, () => value.apply(target, words.map(raw)))
    },
  })
}

export function missing(what) {
  return newest ? new TypeError(`the newest SDK has no ${what}`) : new Skip(`this version has no ${what}`)
}

// The value that a promise rejects with, and a complaint when it does not.
export async function rejection(promise) {
  let answer
  try {
    answer = await promise
  } catch (error) {
    if (error instanceof Skip) throw error
    return error
  }
  throw new Error(`it answered ${JSON.stringify(answer)}`)
}

export async function until(condition, seconds = 120) {
  const deadline = Date.now() + seconds * 1000
  for (;;) {
    const found = await condition()
    if (found) return found
    if (Date.now() > deadline) throw new Error('it did not come true')
    await new Promise((wake) => setTimeout(wake, 50))
  }
}

export async function restartServer() {
  await fetch(process.env.PADDOCK_TEST_LEVER, { method: 'POST' })
}

const RAW = Symbol('raw')
// Read to find out whether they are there.
const DATA = { trafficAccessToken: 1, nextToken: 1, exitCode: 1, error: 1, stdout: 1, stderr: 1 }

function call(name, act) {
  const entry = [name, false]
  calls.push(entry)
  const answer = act()
  if (answer instanceof Promise) {
    return answer.then((value) => {
      entry[1] = true
      return wrap(value)
    })
  }
  entry[1] = true
  return wrap(answer)
}

function wrap(value) {
  return value !== null && typeof value === 'object' && TALKERS.includes(label(value)) ? speak(value) : value
}

function raw(value) {
  return value !== null && typeof value === 'object' ? (value[RAW] ?? value) : value
}

// The name of its class; bundlers put an underscore before it or a number behind it.
function label(target) {
  const name = (typeof target === 'function' ? target : target.constructor)?.name ?? ''
  return name.replace(/^_/, '').replace(/\d+$/, '').replace('TemplateBase', 'Template')
}

function isClass(value) {
  return /^class\b/.test(Function.prototype.toString.call(value))
}

function snake(name) {
  return name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)
}
