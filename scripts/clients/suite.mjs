// A suite runs one client's features and writes a JSON line of each: {client, version, feature, ok, error}.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { setTimeout as after } from 'node:timers/promises'

export { assert }
export const base = process.env.UMA_URL
export const model = 'uma-tiny'
export const system = 'You are a calculator.'
export const question = 'What is 4821 + 977?'
export const answer = '5798' // the built-in model gets this right with temperature 0

const limit = 60_000 // ms for one feature

// weather is a tool whose arguments are few values, so that a check of them means something.
export const weather = {
  name: 'get_weather',
  description: 'The weather of a city.',
  parameters: {
    type: 'object',
    properties: {
      city: { type: 'string', enum: ['Paris', 'Oslo'] },
      days: { type: 'integer', minimum: 1, maximum: 7 },
    },
    required: ['city', 'days'],
    additionalProperties: false,
  },
}

export function validWeather(args) {
  if (typeof args === 'string') args = JSON.parse(args)
  assert.deepEqual(Object.keys(args).sort(), ['city', 'days'])
  assert(['Paris', 'Oslo'].includes(args.city), `city is ${args.city}`)
  assert(Number.isInteger(args.days) && args.days >= 1 && args.days <= 7, `days is ${args.days}`)
  return args
}

// sum is a schema for answers in JSON.
export const sum = {
  type: 'object',
  properties: { sum: { type: 'integer', minimum: 0, maximum: 99999 } },
  required: ['sum'],
  additionalProperties: false,
}

export function validSum(value) {
  if (typeof value === 'string') value = JSON.parse(value)
  assert.deepEqual(Object.keys(value), ['sum'])
  assert(Number.isInteger(value.sum) && value.sum >= 0 && value.sum <= 99999, `sum is ${value.sum}`)
}

// validObject checks an answer in JSON of any form: whole, or begun when the answer's length is at its limit.
export function validObject(text, finish) {
  if (finish === 'length') assert.match(text.trimStart(), /^\{/)
  else assert.equal(typeof JSON.parse(text), 'object')
}

export function includes(text, part) {
  assert(String(text).includes(part), `${JSON.stringify(text)} does not hold ${JSON.stringify(part)}`)
}

// vectors checks embeddings of length 1 of three texts, the first and the last of which are equal.
export function vectors(list) {
  assert.equal(list.length, 3)
  for (const v of list) {
    assert(v.length > 16)
    assert(Math.abs(Math.hypot(...v) - 1) < 1e-3, 'an embedding has the length ' + Math.hypot(...v))
  }
  assert.deepEqual(list[0], list[2])
  assert.notDeepEqual(list[0], list[1])
}

export function positive(n, name) {
  assert(Number.isInteger(n) && n > 0, `${name} is ${n}`)
}

export async function suite(client, features) {
  const { version } = JSON.parse(readFileSync(`node_modules/${client}/package.json`))
  for (const [feature, test] of Object.entries(features)) {
    let error = ''
    const stop = new AbortController()
    try {
      await Promise.race([test(), after(limit, null, { signal: stop.signal }).then(() => {
        throw new Error(`no result after ${limit / 1000} s`)
      })])
    } catch (e) {
      const text = e?.error?.message ?? e?.error?.error?.message ?? e?.message ?? e
      error = String(text) || String(e)
    }
    stop.abort()
    console.log(JSON.stringify({ client, version, feature, ok: error === '', error }))
  }
}
