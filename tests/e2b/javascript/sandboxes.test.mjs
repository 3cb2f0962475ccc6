// Sandboxes come, rest, are found, and go.

import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import * as e2b from 'e2b'
import { Skip, missing, rejection, restartServer, speak, test, until } from './support.mjs'

const Sandbox = speak(e2b.Sandbox)
const NotFound = e2b.SandboxNotFoundError ?? e2b.NotFoundError
const NOBODY = 'inosuchsandbox0000000'

async function within(options, run) {
  const sandbox = await Sandbox.create({ timeoutMs: 120_000, ...options })
  try {
    return await run(sandbox)
  } finally {
    await Sandbox.kill(sandbox.sandboxId)
  }
}

async function everything(paginator) {
  const found = []
  while (paginator.hasNext) found.push(...(await paginator.nextItems()))
  return found
}

test('create answers with a sandbox that runs', () =>
  within({}, async (sandbox) => {
    assert.match(sandbox.sandboxId, /^[a-z0-9]+$/)
    assert.equal(await sandbox.isRunning(), true)
  }))

test('create takes metadata and variables', () =>
  within({ metadata: { team: 'a b', mark: '50%&=ü' }, envs: { COLOUR: 'green' } }, async (sandbox) => {
    assert.deepEqual((await sandbox.getInfo()).metadata, { team: 'a b', mark: '50%&=ü' })
    assert.equal((await sandbox.commands.run('echo $COLOUR')).stdout, 'green\n')
  }))

test('an unknown template is refused', async () => {
  const error = await rejection(Sandbox.create('there-is-no-such-template'))
  assert.ok(error instanceof e2b.SandboxError || error instanceof e2b.NotFoundError, String(error))
})

test('a wrong key is an authentication error', async () => {
  const error = await rejection(Sandbox.create({ apiKey: 'e2b_' + '0'.repeat(40) }))
  assert.ok(error instanceof e2b.AuthenticationError, String(error))
})

test('connect finds the same machine', () =>
  within({}, async (sandbox) => {
    await sandbox.files.write('/home/user/note', 'here')
    const found = await Sandbox.connect(sandbox.sandboxId)
    assert.equal(await found.files.read('/home/user/note'), 'here')
  }))

test('connect does not shorten the time that is left', () =>
  within({ timeoutMs: 300_000 }, async (sandbox) => {
    const before = (await sandbox.getInfo()).endAt
    await Sandbox.connect(sandbox.sandboxId, { timeoutMs: 10_000 })
    assert.deepEqual((await sandbox.getInfo()).endAt, before)
  }))

test('nobody is not found', async () => {
  assert.ok((await rejection(Sandbox.connect(NOBODY))) instanceof NotFound)
  assert.ok((await rejection(Sandbox.getInfo(NOBODY))) instanceof NotFound)
  assert.ok((await rejection(Sandbox.setTimeout(NOBODY, 1000))) instanceof NotFound)
  assert.ok((await rejection(Sandbox.betaPause(NOBODY))) instanceof NotFound)
  assert.equal(await Sandbox.kill(NOBODY), false)
})

test('info tells what a sandbox is', () =>
  within({ timeoutMs: 100_000 }, async (sandbox) => {
    const info = await Sandbox.getInfo(sandbox.sandboxId)
    assert.equal(info.sandboxId, sandbox.sandboxId)
    assert.equal(info.state, 'running')
    const seconds = (info.endAt - info.startedAt) / 1000
    assert.ok(seconds > 95 && seconds < 105, `${seconds}`)
    assert.ok(info.cpuCount >= 1 && info.memoryMB >= 16)
    assert.equal((await Sandbox.getFullInfo(sandbox.sandboxId)).sandboxId, sandbox.sandboxId)
  }))

test('kill tells whether there was one', () =>
  within({}, async (sandbox) => {
    assert.equal(await sandbox.isRunning(), true)
    await sandbox.kill()
    assert.equal(await sandbox.isRunning(), false)
    assert.equal(await Sandbox.kill(sandbox.sandboxId), false)
  }))

test('set timeout lengthens and shortens', () =>
  within({}, async (sandbox) => {
    for (const seconds of [600, 30]) {
      await sandbox.setTimeout(seconds * 1000)
      const left = ((await sandbox.getInfo()).endAt - Date.now()) / 1000
      assert.ok(left > seconds - 5 && left <= seconds + 1, `${left}`)
    }
  }))

test('list finds by metadata and state, in pages', async () => {
  const metadata = { mark: `${randomUUID()} +%&=ü` }
  await within({ metadata }, (first) =>
    within({ metadata }, async (second) => {
      const pages = Sandbox.list({ query: { metadata }, limit: 1 })
      const page = await pages.nextItems()
      assert.deepEqual([page.map((each) => each.sandboxId), pages.hasNext], [[second.sandboxId], true])
      assert.deepEqual((await pages.nextItems()).map((each) => each.sandboxId), [first.sandboxId])
      assert.equal(pages.hasNext, false)
      await first.betaPause()
      const paused = await everything(Sandbox.list({ query: { metadata, state: ['paused'] } }))
      assert.deepEqual(paused.map((each) => each.sandboxId), [first.sandboxId])
    }),
  )
})

test('a paused sandbox resumes with files and processes', () =>
  within({}, async (sandbox) => {
    await sandbox.files.write('/home/user/note', 'kept')
    const handle = await sandbox.commands.run('sleep 600', { background: true, timeoutMs: 0 })
    await sandbox.betaPause()
    assert.equal(await sandbox.isRunning(), false)
    assert.equal((await sandbox.getInfo()).state, 'paused')
    const found = await sandbox.connect()
    assert.equal(await found.files.read('/home/user/note'), 'kept')
    assert.ok((await found.commands.list()).some((each) => each.pid === handle.pid))
  }))

test('pause has a plain name and answers no the second time', () =>
  within({}, async (sandbox) => {
    assert.equal(await sandbox.pause(), true)
    assert.equal(await Sandbox.pause(sandbox.sandboxId), false)
  }))

test('a sandbox may pause at the end of its time, and a request wakes it', () =>
  within({ lifecycle: { onTimeout: 'pause', autoResume: true } }, async (sandbox) => {
    if (!('lifecycle' in (await sandbox.getInfo()))) throw new Skip('this version has no lifecycle')
    await sandbox.files.write('/home/user/note', 'kept')
    await sandbox.setTimeout(0)
    await until(async () => (await sandbox.getInfo()).state === 'paused')
    assert.equal(await sandbox.files.read('/home/user/note'), 'kept')
    assert.equal((await sandbox.getInfo()).state, 'running')
  }))

test('metrics come within half a minute', () =>
  within({}, async (sandbox) => {
    const [sample] = await until(async () => {
      const found = await sandbox.getMetrics()
      return found.length && found
    }, 30)
    assert.ok(sample.memUsed > 0 && sample.memTotal > sample.memUsed && sample.cpuCount >= 1)
    assert.deepEqual([sample.memTotal, sample.diskTotal], [512 * 2 ** 20, 1024 * 2 ** 20])
    assert.ok((await Sandbox.getMetrics(sandbox.sandboxId)).length > 0)
  }))

test('a port has a host name of its own', () =>
  within({}, async (sandbox) => {
    assert.ok(sandbox.getHost(3000).startsWith(`3000-${sandbox.sandboxId}.`))
    assert.equal(sandbox.getMcpUrl(), `https://${sandbox.getHost(50005)}/mcp`)
    await sandbox.files.write('/etc/mcp-gateway/.token', 'of the gateway', { user: 'root' })
    assert.equal(await sandbox.getMcpToken(), 'of the gateway')
  }))

test('ports may ask for a token', () =>
  within({ network: { allowPublicTraffic: false } }, async (sandbox) => {
    const token = sandbox.trafficAccessToken
    assert.ok(token)
    await sandbox.commands.run('python3 -m http.server 3000', { background: true, timeoutMs: 0 })
    const ask = async (headers) => {
      const routing = { 'E2b-Sandbox-Id': sandbox.sandboxId, 'E2b-Sandbox-Port': '3000' }
      return (await fetch(process.env.E2B_SANDBOX_URL, { headers: { ...routing, ...headers } })).status
    }
    await until(async () => (await ask({ 'e2b-traffic-access-token': token })) === 200)
    assert.equal(await ask({}), 403)
  }))

test('ways out are changed while it runs', () =>
  within({}, async (sandbox) => {
    await sandbox.updateNetwork({ denyOut: ['203.0.113.7/32'] })
    assert.deepEqual((await sandbox.getInfo()).network.denyOut, ['203.0.113.7/32'])
  }))

test('who follows a command hears of the kill', () =>
  within({}, async (sandbox) => {
    const handle = await sandbox.commands.run('sleep 600', { background: true, timeoutMs: 0 })
    const waiting = rejection(handle.wait())
    await sandbox.kill()
    assert.ok((await waiting) instanceof Error)
  }))

test('old handles work with a server that died and came back', () =>
  within({}, async (sandbox) => {
    const handle = await sandbox.commands.run('read line; echo got $line', {
      background: true, stdin: true, timeoutMs: 0,
    })
    rejection(handle.wait())
    await restartServer()
    const again = await sandbox.commands.connect(handle.pid)
    await sandbox.commands.sendStdin(handle.pid, 'hello\n')
    assert.equal((await again.wait()).stdout, 'got hello\n')
  }))

test('snapshots are refused as errors of the SDK', () =>
  within({}, async (sandbox) => {
    assert.ok((await rejection(sandbox.createSnapshot())) instanceof Error)
    assert.deepEqual(await sandbox.listSnapshots().nextItems(), [])
    assert.equal(await Sandbox.deleteSnapshot('nosuchsnapshot:default'), false)
    assert.equal(await sandbox.isRunning(), true)
  }))

test('forks are refused as errors of the SDK', () =>
  within({}, async (sandbox) => {
    assert.ok((await rejection(sandbox.fork())) instanceof Error)
    assert.equal(await sandbox.isRunning(), true)
  }))

test('volumes are refused as errors of the SDK', async () => {
  if (!e2b.Volume) throw missing('Volume')
  const Volume = speak(e2b.Volume)
  const calls = [() => Volume.create('mine'), () => Volume.connect('nosuch'), () => Volume.getInfo('nosuch')]
  for (const call of calls) assert.ok((await rejection(call())) instanceof Error)
  assert.deepEqual(await Volume.list(), [])
  assert.equal(await Volume.destroy('nosuch'), false)
})

test('secrets are refused as errors of the SDK', async () => {
  if (!e2b.Secret) throw missing('Secret')
  const Secret = speak(e2b.Secret)
  const calls = [() => Secret.create('mine', 'x'), () => Secret.update('mine', 'x'), () => Secret.getInfo('mine')]
  for (const call of calls) assert.ok((await rejection(call())) instanceof Error)
  assert.deepEqual(await Secret.list().nextItems(), [])
  assert.equal(await Secret.exists('mine'), false)
  assert.equal(await Secret.destroy('mine'), false)
})

test('templates are refused as errors of the SDK', async () => {
  const Template = speak(e2b.Template)
  const template = e2b.Template().fromPythonImage('3.12')
  const info = { templateId: 'a'.repeat(20), buildId: randomUUID(), alias: 'mine', name: 'mine', tags: [] }
  const calls = [
    () => Template.build(template, { alias: 'mine' }),
    () => Template.buildInBackground(template, { alias: 'mine' }),
    () => Template.getBuildStatus(info),
  ]
  for (const call of calls) assert.ok((await rejection(call())) instanceof Error)
  assert.equal(await Template.exists('base'), true)
  assert.equal(await Template.exists(`no-${randomUUID()}`), false)
  assert.equal(await Template.aliasExists('base'), true)
  for (const call of [
    () => Template.assignTags('mine:one', 'two'),
    () => Template.removeTags('mine', 'two'),
    () => Template.getTags('mine'),
  ]) {
    assert.ok((await rejection(call())) instanceof Error)
  }
})
