// The library @anthropic-ai/sdk.
import Anthropic from '@anthropic-ai/sdk'
import { answer, assert, base, includes, model, positive, question, suite, sum, system, validSum, validWeather, weather } from './suite.mjs'

const client = new Anthropic({ baseURL: base, apiKey: 'none', maxRetries: 0 })
const messages = [{ role: 'user', content: question }]
const ask = [{ role: 'user', content: 'What is the weather in Paris?' }]
const tools = [{ name: weather.name, description: weather.description, input_schema: weather.parameters }]
const thinking = { type: 'enabled', budget_tokens: 1024 }
// one asks for a single call: the model does not stop by itself after one.
const one = choice => ({ ...choice, disable_parallel_tool_use: true })
const params = (more = {}) => ({ model, messages, temperature: 0, max_tokens: 400, ...more })
const create = more => client.messages.create(params(more))
const text = m => m.content.filter(b => b.type === 'text').map(b => b.text).join('')
const block = (m, type) => m.content.find(b => b.type === type) ?? assert.fail(`no block of type ${type}`)

async function answered(m) {
  const call = block(m, 'tool_use')
  const turn = await create({
    tools, tool_choice: { type: 'none' }, max_tokens: 100,
    messages: [...ask, { role: 'assistant', content: m.content },
      { role: 'user', content: [{ type: 'tool_result', tool_use_id: call.id, content: 'clear' }] }],
  })
  assert(text(turn).length > 0, 'the second turn has no text')
}

await suite('@anthropic-ai/sdk', {
  'list models': async () => {
    const ids = []
    for await (const m of client.models.list()) ids.push(m.id)
    assert.deepEqual(ids, [model])
  },
  'messages': async () => {
    const m = await create()
    includes(text(m), answer)
    assert.equal(m.stop_reason, 'end_turn')
  },
  'streaming': async () => {
    const stream = client.messages.stream(params())
    let shown = ''
    stream.on('text', t => { shown += t })
    const m = await stream.finalMessage()
    includes(shown, answer)
    assert.equal(text(m), shown)
  },
  'system': async () => {
    const m = await create({ system })
    includes(text(m), answer)
    includes(text(await create({ system: [{ type: 'text', text: system, cache_control: { type: 'ephemeral' } }] })), answer)
  },
  'thinking': async () => {
    const m = await create({ thinking, max_tokens: 2048 })
    includes(block(m, 'thinking').thinking, 'So ')
    includes(text(m), answer)
    let shown = ''
    const stream = client.messages.stream(params({ thinking, max_tokens: 2048 }))
    stream.on('thinking', t => { shown += t })
    const streamed = await stream.finalMessage()
    includes(shown, 'So ')
    const next = await create({
      thinking, max_tokens: 2048,
      messages: [...messages, { role: 'assistant', content: streamed.content }, { role: 'user', content: 'Subtract 45 from 1234.' }],
    })
    includes(text(next), '1189')
    assert(!(await create({ thinking: { type: 'disabled' } })).content.some(b => b.type === 'thinking'))
  },
  'usage': async () => {
    for (const { usage } of [await create(), await client.messages.stream(params()).finalMessage()]) {
      positive(usage.input_tokens + usage.cache_read_input_tokens, 'input tokens')
      positive(usage.output_tokens, 'output_tokens')
    }
  },
  'count_tokens': async () => {
    const { input_tokens } = await client.messages.countTokens({ model, messages, system, tools })
    const { usage } = await create({ system, tools, max_tokens: 1 })
    assert.equal(input_tokens, usage.input_tokens + usage.cache_read_input_tokens + usage.cache_creation_input_tokens)
  },
  'stop': async () => {
    const m = await create({ stop_sequences: ['7'] })
    assert.equal(text(m).trim(), '5')
    assert.equal(m.stop_reason, 'stop_sequence')
    assert.equal(m.stop_sequence, '7')
  },
  'tools, auto': async () => {
    for (const m of [await create({ messages: ask, tools, max_tokens: 100 }),
      await client.messages.stream(params({ messages: ask, tools, tool_choice: { type: 'auto' }, max_tokens: 100 })).finalMessage()]) {
      if (m.stop_reason === 'tool_use') validWeather(block(m, 'tool_use').input)
      else assert(text(m).length > 0, 'neither a call nor text')
    }
    await answered({ content: [{ type: 'tool_use', id: 'toolu_1', name: weather.name, input: { city: 'Paris', days: 1 } }] })
  },
  'tools, required': async () => {
    for (const tool_choice of [one({ type: 'any' }), one({ type: 'tool', name: weather.name })]) {
      const m = await create({ messages: ask, tools, tool_choice })
      assert.equal(m.stop_reason, 'tool_use')
      validWeather(block(m, 'tool_use').input)
      await answered(m)
    }
  },
  'tools, streamed': async () => {
    let pieces = 0
    const stream = client.messages.stream(params({ messages: ask, tools, tool_choice: one({ type: 'any' }) }))
    stream.on('inputJson', () => { pieces++ })
    const m = await stream.finalMessage()
    assert(pieces > 1, 'the arguments came in one piece')
    validWeather(block(m, 'tool_use').input)
    await answered(m)
  },
  'json_schema': async () => {
    validSum(text(await create({ output_config: { format: { type: 'json_schema', schema: sum } } })))
  },
  'errors': async () => {
    await assert.rejects(create({ temperature: 'hot' }), e => e instanceof Anthropic.BadRequestError && /temperature/.test(e.message))
  },
})
