// The command line program, as a person or a script calls it.

import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { join } from 'node:path'
import { Skip, calls, test, until } from './support.mjs'

const PROGRAM = join(process.env.PADDOCK_TEST_ENVIRONMENT, 'node_modules', '.bin', 'e2b')

// Its exit code and what it said, and the words that it was called with, for the table.
async function e2b(words, input) {
  const command = `e2b ${words.slice(0, 2).join(' ')}`
  const child = spawn(PROGRAM, words, { stdio: [input === undefined ? 'ignore' : 'pipe', 'pipe', 'pipe'] })
  const said = { out: '', err: '' }
  child.stdout.on('data', (part) => { said.out += part })
  child.stderr.on('data', (part) => { said.err += part })
  if (input !== undefined) child.stdin.end(input)
  const code = await new Promise((resolve) => child.on('close', resolve))
  calls.push([command, code === 0])
  return { ...said, code, text: said.out + said.err }
}

async function create() {
  const { text, code } = await e2b(['sandbox', 'create', '--detach'])
  assert.equal(code, 0, text)
  const [id] = text.match(/\bi[a-z0-9]{20}\b/)
  return id
}

const id = await create()

test('create makes one and says which', async () => {
  const other = await create()
  assert.notEqual(other, id)
  assert.equal((await e2b(['sandbox', 'kill', other])).code, 0)
})

test('exec gives output and exit code', async () => {
  const done = await e2b(['sandbox', 'exec', id, 'echo', 'hello'])
  assert.deepEqual([done.out, done.code], ['hello\n', 0])
  assert.equal((await e2b(['sandbox', 'exec', id, '--', 'sh', '-c', 'exit 3'])).code, 3)
})

test('exec reads from a pipe', async () => {
  const done = await e2b(['sandbox', 'exec', id, 'cat'], 'from a pipe')
  assert.deepEqual([done.out, done.code], ['from a pipe', 0])
})

test('list shows it', async () => {
  assert.ok((await e2b(['sandbox', 'list'])).text.includes(id))
  const found = JSON.parse((await e2b(['sandbox', 'list', '--format', 'json'])).out)
  assert.ok(found.some((each) => each.sandboxId === id))
})

test('info tells of it', async () => {
  const { text, code } = await e2b(['sandbox', 'info', id])
  assert.equal(code, 0)
  assert.ok(text.includes(id))
})

test('metrics are shown', async () => {
  await until(async () => {
    const { code, text } = await e2b(['sandbox', 'metrics', id])
    assert.equal(code, 0, text)
    return /cpu/i.test(text)
  }, 30)
})

test('logs are shown', async () => {
  const { code, text } = await e2b(['sandbox', 'logs', id])
  assert.equal(code, 0, text)
})

test('pause and resume', async () => {
  assert.equal((await e2b(['sandbox', 'pause', id])).code, 0)
  assert.equal((await e2b(['sandbox', 'resume', id])).code, 0)
  assert.equal((await e2b(['sandbox', 'exec', id, 'echo', 'again'])).out, 'again\n')
})

test('templates are listed', async () => {
  const { code, text } = await e2b(['template', 'list'])
  assert.equal(code, 0, text)
  assert.ok(text.includes('base') || text.includes('host'))
})

test('connect opens a terminal', async () => {
  // Only on a terminal, which `script` makes.
  const typed = 'echo $((40 + 2))\nexit\n'
  const child = spawn('script', ['-qec', `${PROGRAM} sandbox connect ${id}`, '/dev/null'])
  let said = ''
  child.stdout.on('data', (part) => { said += part })
  const ended = new Promise((resolve, reject) => {
    child.on('close', resolve)
    child.on('error', (error) => reject(error.code === 'ENOENT' ? new Skip('needs the program script') : error))
  })
  child.stdin.write(typed)
  await ended
  assert.ok(said.includes('42'), said)
  calls.push(['e2b sandbox connect', true])
})

test('kill ends it', async () => {
  assert.equal((await e2b(['sandbox', 'kill', id])).code, 0)
  assert.ok(!(await e2b(['sandbox', 'list'])).text.includes(id))
})
