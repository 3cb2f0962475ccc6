// How code becomes a value: types stripped, imports made dynamic, evaluated by the inspector, shown as a MIME bundle.
'use strict'

const inspector = require('inspector')
const Module = require('module')
const path = require('path')
const { pathToFileURL } = require('url')
const { inspect } = require('util')

const DISPLAY = Symbol.for('Jupyter.display')
const TAKE = Symbol.for('paddock.take')
const STATIC_IMPORT = /^([ \t]*)import\s+(?:([\w$*{},\s]+?)\s*from\s*)?(['"])([^'"\n]+)\3[ \t]*;?/gm
const EXPORT = /^([ \t]*)export\s+(?=(?:const|let|var|function|class|async)\b)/gm
// Strings, templates and comments are matched first, so that what looks like an import in them stays what it is.
const DYNAMIC_IMPORT =
  /('(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*"|`(?:\\.|[^`\\])*`|\/\/[^\n]*|\/\*[\s\S]*?\*\/)|(?<![\w$.])import(?=\s*\()/g

const session = new inspector.Session()
session.connect()

class Interrupted extends Error {
  constructor () {
    super('The execution was interrupted')
    this.name = 'Interrupted'
    this.stack = ''
  }
}

// The value of the code's last expression; throws what the code throws.
async function evaluate (code, typescript) {
  const expression = withoutImports(typescript ? withoutTypes(code) : code)
  let answer
  try {
    answer = await post('Runtime.evaluate', { expression, replMode: true })
  } catch (problem) {
    if (/terminated/.test(problem.message)) throw new Interrupted()
    throw problem
  }
  if (answer.exceptionDetails) {
    const { exception, text } = answer.exceptionDetails
    throw exception ? await real(exception) : new Error(text)
  }
  return real(answer.result)
}

function post (method, options) {
  return new Promise((resolve, reject) => {
    session.post(method, options, (problem, answer) => (problem ? reject(problem) : resolve(answer)))
  })
}

// The thing itself, of which the inspector gives a description.
async function real (described) {
  if (described.objectId === undefined) {
    const special = described.unserializableValue
    if (special === undefined) return described.value
    return special.endsWith('n') ? BigInt(special.slice(0, -1)) : Number(special)
  }
  let taken
  globalThis[TAKE] = (value) => { taken = value }
  try {
    await post('Runtime.callFunctionOn', {
      functionDeclaration: 'function (value) { globalThis[Symbol.for("paddock.take")](value) }',
      objectId: described.objectId,
      arguments: [{ objectId: described.objectId }]
    })
    await post('Runtime.releaseObject', { objectId: described.objectId })
  } finally {
    delete globalThis[TAKE]
  }
  return taken
}

async function bundle (value) {
  if (value !== null && typeof value === 'object' && typeof value[DISPLAY] === 'function') return value[DISPLAY]()
  return { 'text/plain': typeof value === 'string' ? `'${value}'` : inspect(value) }
}

function failure (problem) {
  if (!(problem instanceof Error)) {
    return { type: 'error', name: 'Uncaught', value: inspect(problem), traceback: '' }
  }
  return { type: 'error', name: problem.name, value: problem.message, traceback: withoutOurFrames(problem.stack) }
}

function withoutOurFrames (stack) {
  const frames = String(stack).split('\n')
  const ours = frames.findIndex((frame) => /\bat (?:Session\.post|post) \(/.test(frame))
  return (ours < 0 ? frames : frames.slice(0, ours)).join('\n')
}

// What code may use that stands in no file.
function furnish (display) {
  globalThis.require = (name) => here().call(undefined, name)
  Object.defineProperty(globalThis.require, 'resolve', { get: () => here().resolve })
  globalThis.display = display
  Object.defineProperty(globalThis, '__import', { value: importFromHere, enumerable: false })
}

function here () {
  return Module.createRequire(path.join(process.cwd(), 'code.js'))
}

async function importFromHere (name) {
  const wanted = String(name).replace(/^npm:((?:@[^/]+\/)?[^@/]+)(?:@[^/]+)?/, '$1')
  if (/^\.{0,2}\//.test(wanted)) return import(pathToFileURL(path.resolve(wanted)).href)
  if (/^[a-z]+:/.test(wanted) || Module.builtinModules.includes(wanted)) return import(wanted)
  return import(pathToFileURL(here().resolve(wanted)).href)
}

function withoutImports (code) {
  return code
    .replace(STATIC_IMPORT, (_, indent, clause, quote, name) => indent + asDynamic(clause, JSON.stringify(name)))
    .replace(EXPORT, '$1')
    .replace(DYNAMIC_IMPORT, (found, skipped) => (skipped === undefined ? '__import' : found))
}

function asDynamic (clause, name) {
  const loaded = `await __import(${name});`
  if (clause === undefined) return loaded
  const [, first, , rest] = /^\s*([\w$]+)?\s*(,)?\s*([\s\S]*)$/.exec(clause)
  const whole = /^\*\s*as\s+([\w$]+)$/.exec(rest.trim())
  if (whole) return `const ${whole[1]} = ${loaded}` + (first ? ` const ${first} = ${whole[1]}.default;` : '')
  const names = rest.replace(/[{}]/g, '').split(',').map((each) => each.trim()).filter(Boolean)
  const fields = names.map((each) => each.replace(/^type\s+/, '').replace(/\s+as\s+/, ': '))
  return `const { ${[...(first ? [`default: ${first}`] : []), ...fields].join(', ')} } = ${loaded}`
}

// Node has a stripper of its own since 22.13, which is experimental, says so on standard error, and knows no enums.
function withoutTypes (code) {
  const { transform } = require('./vendor/sucrase.js')
  return transform(code, { transforms: ['typescript'], disableESTransforms: true, keepUnusedImports: true }).code
}

module.exports = { Interrupted, bundle, evaluate, failure, furnish }
