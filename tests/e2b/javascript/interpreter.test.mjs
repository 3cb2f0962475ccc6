// Code that remembers.

import assert from 'node:assert/strict'
import * as interpreter from '@e2b/code-interpreter'
import { rejection, speak, test, until } from './support.mjs'

const Sandbox = speak(interpreter.Sandbox)
const sandbox = await Sandbox.create({ timeoutMs: 600_000, envs: { COLOUR: 'green' } })

test('code answers with its last value, and remembers', async () => {
  assert.equal((await sandbox.runCode('x = 40\nx + 2')).text, '42')
  assert.equal((await sandbox.runCode('x')).text, '40')
})

test('output, results and errors are told', async () => {
  const heard = { out: '', err: '', results: [], errors: [] }
  const execution = await sandbox.runCode("import sys\nprint('out ü')\nprint('err', file=sys.stderr)\n1", {
    onStdout: (message) => { heard.out += message.line },
    onStderr: (message) => { heard.err += message.line },
    onResult: (result) => { heard.results.push(result.text) },
  })
  assert.deepEqual([heard.out, heard.err, heard.results], ['out ü\n', 'err\n', ['1']])
  assert.deepEqual([execution.logs.stdout.join(''), execution.logs.stderr.join('')], ['out ü\n', 'err\n'])
  const failed = await sandbox.runCode('1 / 0', { onError: (error) => { heard.errors.push(error.name) } })
  assert.deepEqual([failed.error.name, heard.errors], ['ZeroDivisionError', ['ZeroDivisionError']])
})

test('variables of one run are not of another', async () => {
  const code = "import os\nos.environ.get('ONCE', 'no') + os.environ['COLOUR']"
  assert.equal((await sandbox.runCode(code, { envs: { ONCE: 'yes' } })).text, 'yesgreen')
  assert.equal((await sandbox.runCode(code)).text, 'nogreen')
})

test('contexts come, start anew and go', async () => {
  const context = await sandbox.createCodeContext({ cwd: '/tmp' })
  await sandbox.runCode('mine = 1', { context })
  assert.equal((await sandbox.runCode('mine', { context })).text, '1')
  assert.equal((await sandbox.runCode('mine')).error.name, 'NameError')
  assert.equal((await sandbox.listCodeContexts()).at(-1).id, context.id)
  await sandbox.restartCodeContext(context)
  assert.equal((await sandbox.runCode('mine', { context })).error.name, 'NameError')
  await sandbox.removeCodeContext(context)
  assert.ok((await rejection(sandbox.removeCodeContext(context))) instanceof Error)
})

test('code that takes too long is interrupted', async () => {
  await rejection(sandbox.runCode('import time\ntime.sleep(300)', { timeoutMs: 1000 }))
  await until(async () => (await sandbox.runCode("'alive'")).text === 'alive')
})

test('the sandbox of these tests is gone afterwards', async () => {
  assert.equal(await Sandbox.kill(sandbox.sandboxId), true)
})
