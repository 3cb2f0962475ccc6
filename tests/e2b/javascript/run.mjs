// Runs the tests of one file in order, and writes a line of JSON for each.

import { appendFileSync } from 'node:fs'
import { Skip, calls, tests } from './support.mjs'

const SECONDS = 60

await import(`./${process.argv[2]}`)
for (const { name, run } of tests) {
  calls.length = 0
  const line = { test: name, outcome: 'passed', message: '' }
  try {
    await within(SECONDS, run())
  } catch (error) {
    line.outcome = error instanceof Skip ? 'skipped' : 'failed'
    line.message = error instanceof Skip ? error.message : (error?.stack ?? String(error))
  }
  appendFileSync(process.env.PADDOCK_TEST_REPORT, JSON.stringify({ ...line, calls }) + '\n')
}
process.exit(0)

async function within(seconds, promise) {
  let timer
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`took longer than ${seconds} s`)), seconds * 1000)
  })
  try {
    await Promise.race([promise, late])
  } finally {
    clearTimeout(timer)
  }
}
