// Commands, terminals, files and git in one sandbox.

import assert from 'node:assert/strict'
import * as e2b from 'e2b'
import { Skip, missing, rejection, speak, test, until } from './support.mjs'

const Sandbox = speak(e2b.Sandbox)
const FileNotFound = e2b.FileNotFoundError ?? e2b.NotFoundError
const BIG = new Uint8Array(4 * 1024 * 1024).map((_, index) => index % 251)
const sandbox = await Sandbox.create({ timeoutMs: 600_000 })
const { files, commands, pty } = sandbox
const decoder = new TextDecoder()

let folders = 0
async function folder() {
  const path = `/home/user/js-${++folders}`
  await files.makeDir(path)
  return path
}

test('a command answers with its output', async () => {
  const [out, err] = [[], []]
  const result = await commands.run('echo out; echo err >&2', {
    onStdout: (part) => { out.push(part) }, onStderr: (part) => { err.push(part) },
  })
  assert.deepEqual([result.stdout, result.stderr, result.exitCode], ['out\n', 'err\n', 0])
  assert.deepEqual([out.join(''), err.join('')], ['out\n', 'err\n'])
})

test('a command that fails rejects with what it said', async () => {
  const error = await rejection(commands.run('echo out; exit 3'))
  assert.ok(error instanceof e2b.CommandExitError)
  assert.deepEqual([error.exitCode, error.stdout, error.error], [3, 'out\n', 'exit status 3'])
})

test('a command takes variables, a folder and a user', async () => {
  const result = await commands.run('echo $A; pwd; whoami', { envs: { A: '1' }, cwd: '/tmp', user: 'root' })
  assert.equal(result.stdout, '1\n/tmp\nroot\n')
  assert.ok((await rejection(commands.run('pwd', { cwd: '/no/such' }))) instanceof e2b.InvalidArgumentError)
})

test('a command that takes too long is ended', async () => {
  assert.ok((await rejection(commands.run('sleep 600', { timeoutMs: 1000 }))) instanceof e2b.TimeoutError)
})

test('large output is whole', async () => {
  assert.equal((await commands.run("head -c 3000000 /dev/zero | tr '\\0' x")).stdout.length, 3_000_000)
})

test('a command in the background takes input and is found again', async () => {
  const handle = await commands.run('read line; echo got $line', { background: true, stdin: true })
  assert.ok((await commands.list()).some((each) => each.pid === handle.pid))
  await handle.disconnect()
  const again = await commands.connect(handle.pid)
  await commands.sendStdin(handle.pid, 'hello\n')
  assert.equal((await again.wait()).stdout, 'got hello\n')
})

test('closed input is the end of it', async () => {
  const handle = await commands.run('cat; echo over', { background: true, stdin: true })
  await commands.sendStdin(handle.pid, 'one\n')
  await commands.closeStdin(handle.pid)
  assert.equal((await handle.wait()).stdout, 'one\nover\n')
})

test('a handle sends and closes input', async () => {
  const handle = await commands.run('cat', { background: true, stdin: true })
  await handle.sendStdin('by handle')
  await handle.closeStdin()
  assert.equal((await handle.wait()).stdout, 'by handle')
})

test('a killed command rejects', async () => {
  const handle = await commands.run('sleep 60', { background: true })
  const waiting = rejection(handle.wait())
  assert.equal(await handle.kill(), true)
  assert.ok((await waiting) instanceof e2b.CommandExitError)
  assert.equal(await commands.kill(4_000_000), false)
})

test('a process that is not there is not found', async () => {
  assert.ok((await rejection(commands.connect(4_000_000))) instanceof e2b.NotFoundError)
  assert.ok((await rejection(commands.sendStdin(4_000_000, 'x'))) instanceof e2b.NotFoundError)
})

test('a terminal answers and has a size that changes', async () => {
  let said = ''
  const onData = (part) => { said += decoder.decode(part) }
  const terminal = await pty.create({ cols: 80, rows: 24, onData, timeoutMs: 0, cwd: '/tmp', envs: { HELLO: 'moin' } })
  const type = (text) => pty.sendInput(terminal.pid, new TextEncoder().encode(text))
  await type('echo $HELLO-$((40 + 2)); pwd; stty size\n')
  await until(() => said.includes('moin-42') && said.includes('24 80'))
  await pty.resize(terminal.pid, { cols: 132, rows: 50 })
  await type('stty size\n')
  await until(() => said.includes('50 132'))
  assert.equal(await pty.kill(terminal.pid), true)
  assert.equal(await pty.kill(4_000_000), false)
})

test('a terminal is found again', async () => {
  const terminal = await pty.create({ cols: 80, rows: 24, onData: () => {}, timeoutMs: 0 })
  let said = ''
  await pty.connect(terminal.pid, { onData: (part) => { said += decoder.decode(part) } })
  await pty.sendInput(terminal.pid, new TextEncoder().encode('echo $((2000 + 2))\n'))
  await until(() => said.includes('2002'))
  await pty.kill(terminal.pid)
})

test('files come back as text, bytes, blob and stream', async () => {
  const path = `${await folder()}/file`
  const info = await files.write(path, 'text ü')
  assert.deepEqual([info.path, info.name, info.type], [path, 'file', 'file'])
  assert.equal(await files.read(path), 'text ü')
  await files.write(path, BIG.buffer)
  assert.deepEqual(await files.read(path, { format: 'bytes' }), BIG)
  assert.equal((await files.read(path, { format: 'blob' })).size, BIG.length)
  let size = 0
  for await (const part of await files.read(path, { format: 'stream' })) size += part.length
  assert.equal(size, BIG.length)
})

test('blobs and streams are written', async () => {
  const path = `${await folder()}/file`
  await files.write(path, new Blob(['of a blob']))
  assert.equal(await files.read(path), 'of a blob')
  await files.write(path, new Blob(['of a stream']).stream())
  assert.equal(await files.read(path), 'of a stream')
})

test('an empty file is empty', async () => {
  const path = `${await folder()}/file`
  await files.write(path, '')
  assert.equal(await files.read(path), '')
})

test('many files are written at once', async () => {
  const path = await folder()
  const entries = [1, 2, 3].map((number) => ({ path: `${path}/${number}/file`, data: `text ${number}` }))
  const written = await files.write(entries)
  assert.deepEqual(written.map((each) => each.path), entries.map((each) => each.path))
  assert.equal(await files.read(`${path}/2/file`), 'text 2')
})

test('many files are written by a name of its own', async () => {
  const path = await folder()
  await files.writeFiles([{ path: `${path}/a`, data: 'a' }, { path: `${path}/b`, data: 'b' }])
  assert.equal((await files.list(path)).length, 2)
})

test('files are sent compressed', async () => {
  const path = `${await folder()}/file`
  await files.write(path, BIG.buffer, { gzip: true })
  assert.deepEqual(await files.read(path, { format: 'bytes', gzip: true }), BIG)
})

test('metadata stays with a file', async () => {
  const path = `${await folder()}/file`
  const info = await files.write(path, 'x', { useOctetStream: true, metadata: { Kind: 'note' } })
  if (!('metadata' in info)) throw missing('files.write with metadata')
  assert.deepEqual((await files.getInfo(path)).metadata, { kind: 'note' })
})

test('folders are made, listed, renamed and removed', async () => {
  const path = await folder()
  assert.equal(await files.makeDir(`${path}/one/two`), true)
  assert.equal(await files.makeDir(`${path}/one`), false)
  await files.write(`${path}/one/file`, 'x')
  const found = await files.list(path, { depth: 2 })
  assert.deepEqual(found.map((each) => [each.name, each.type]), [['one', 'dir'], ['file', 'file'], ['two', 'dir']])
  const moved = await files.rename(`${path}/one`, `${path}/uno`)
  assert.equal(moved.path, `${path}/uno`)
  assert.equal(await files.exists(`${path}/one`), false)
  await files.remove(`${path}/uno`)
  assert.equal(await files.exists(`${path}/uno`), false)
})

test('info of a file', async () => {
  const path = `${await folder()}/file`
  await files.write(path, 'five!')
  const info = await files.getInfo(path)
  assert.deepEqual(
    [info.name, info.type, info.size, info.mode, info.permissions, info.owner, info.group],
    ['file', 'file', 5, 0o644, '-rw-r--r--', 'user', 'user'],
  )
})

test('what is not there is not found', async () => {
  for (const promise of [
    files.read('/no/such'), files.list('/no/such'), files.getInfo('/no/such'), files.rename('/no/such', '/tmp/x'),
  ]) {
    const error = await rejection(promise)
    assert.ok(error instanceof FileNotFound, String(error))
  }
})

test('a watched folder tells its events', async () => {
  const path = await folder()
  const seen = []
  const watch = await files.watchDir(path, (event) => { seen.push(`${event.name} ${event.type}`) }, { recursive: true })
  await files.write(`${path}/file`, 'x')
  await until(() => seen.includes('file write'))
  assert.deepEqual(seen, ['file create', 'file chmod', 'file write'])
  await watch.stop()
})

test('links download and upload', async () => {
  const path = await folder()
  await files.write(`${path}/file`, 'by link')
  const download = await fetch(await sandbox.downloadUrl(`${path}/file`))
  assert.equal(await download.text(), 'by link')
  const form = new FormData()
  form.append('file', new Blob(['up']), 'other')
  const link = await sandbox.uploadUrl(`${path}/up`, { useSignatureExpiration: 60_000 })
  assert.equal((await fetch(link, { method: 'POST', body: form })).status, 200)
  assert.equal(await files.read(`${path}/up`), 'up')
})

test('git goes from one repository to another', async () => {
  if (!e2b.Git) throw new Skip('this version has no git')
  const { git } = sandbox
  const path = await folder()
  const work = `${path}/work`
  await git.init(work, { initialBranch: 'main' })
  await git.configureUser('Me', 'me@example.org', { scope: 'local', path: work })
  await files.write(`${work}/file`, 'one')
  await git.add(work)
  await git.commit(work, 'first')
  assert.equal((await git.status(work)).isClean, true)
  await git.init(`${path}/remote.git`, { bare: true, initialBranch: 'main' })
  await git.remoteAdd(work, 'origin', `${path}/remote.git`)
  assert.equal(await git.remoteGet(work, 'origin'), `${path}/remote.git`)
  await git.push(work, { remote: 'origin', branch: 'main' })
  await git.clone(`${path}/remote.git`, { path: `${path}/copy` })
  await git.pull(`${path}/copy`)
  assert.equal(await files.read(`${path}/copy/file`), 'one')
  await git.createBranch(work, 'side')
  await git.checkoutBranch(work, 'main')
  await git.deleteBranch(work, 'side')
  assert.equal((await git.branches(work)).currentBranch, 'main')
  await files.write(`${work}/file`, 'two')
  await git.add(work)
  await git.restore(work, { paths: ['file'], staged: true })
  await git.reset(work, { mode: 'hard' })
  assert.equal(await files.read(`${work}/file`), 'one')
  await git.setConfig('pull.rebase', 'true', { scope: 'local', path: work })
  assert.equal(await git.getConfig('pull.rebase', { scope: 'local', path: work }), 'true')
  await git.dangerouslyAuthenticate({ username: 'me', password: 'token' })
  await files.remove('/home/user/.git-credentials')
})

test('the sandbox of these tests is gone afterwards', async () => {
  assert.equal(await Sandbox.kill(sandbox.sandboxId), true)
})
