// A program as its users write it, and beside it a listener of its own. It says what it saw, and must end by itself.
import { Daytona } from '@daytona/sdk'
import { io } from 'socket.io-client'

const apiKey = process.env.DAYTONA_API_KEY
const apiUrl = new URL(process.env.DAYTONA_API_URL)
const options = { path: `${apiUrl.pathname}/socket.io/`, transports: ['websocket'], reconnection: false }

const listen = (token) => {
  const socket = io(apiUrl.origin, { ...options, auth: { token }, forceNew: true })
  return new Promise((resolve) => {
    socket.on('connect', () => resolve({ socket }))
    socket.on('connect_error', (error) => resolve({ refused: error.message }))
  })
}

const { refused } = await listen('wrong')
const { socket } = await listen(apiKey)
const states = []
let id
const destroyed = new Promise((resolve) =>
  socket.on('sandbox.state.updated', (data) => {
    states.push([data.sandbox.id, data.newState])
    if (data.newState === 'destroyed') resolve()
  }),
)

const daytona = new Daytona({ apiKey, apiUrl: apiUrl.href })
const sandbox = await daytona.create()
id = sandbox.id
await sandbox.fs.uploadFile(Buffer.from('x'), 'a.txt')
await sandbox.fs.setFilePermissions('a.txt', { owner: 'daytona', group: 'daytona', mode: '640' })
const file = (await sandbox.process.executeCommand('stat -c %U:%a a.txt')).result.trim()
await sandbox.stop()
await sandbox.delete()
await destroyed
socket.disconnect()
console.log(JSON.stringify({ refused, file, states: states.filter((each) => each[0] === id).map((each) => each[1]) }))
