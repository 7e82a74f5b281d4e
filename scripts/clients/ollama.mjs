// The library ollama.
import { Ollama } from 'ollama'
import { answer, assert, base, includes, model, positive, question, suite, sum, system, validObject, validSum, validWeather, vectors, weather } from './suite.mjs'

const client = new Ollama({ host: base })
const messages = [{ role: 'user', content: question }]
const ask = [{ role: 'user', content: 'What is the weather in Paris?' }]
const tools = [{ type: 'function', function: weather }]
const options = { temperature: 0, num_predict: 400 }
const chat = (more = {}) => client.chat({ model, messages, options, ...more })

async function collect(stream) {
  const got = { text: '', thinking: '', calls: [] }
  for await (const part of stream) {
    got.text += part.message?.content ?? part.response ?? ''
    got.thinking += part.message?.thinking ?? part.thinking ?? ''
    got.calls.push(...(part.message?.tool_calls ?? []))
    if (part.done) got.done = part
  }
  return got
}

async function answered(message) {
  const turn = await chat({
    tools, options: { ...options, num_predict: 100 },
    messages: [...ask, message, { role: 'tool', tool_name: weather.name, content: 'clear' }],
  })
  assert(turn.message.content.length > 0 || turn.message.tool_calls?.length > 0, 'the second turn is empty')
}

await suite('ollama', {
  'list models': async () => {
    const { models } = await client.list()
    assert.equal(models.length, 1)
    includes(models[0].name, model)
  },
  'show': async () => {
    const got = await client.show({ model })
    assert(got.capabilities.includes('completion'))
    assert(got.template.length > 0 && got.details.family.length > 0)
  },
  'ps': async () => includes((await client.ps()).models[0].name, model),
  'version': async () => assert.match((await client.version()).version, /^\d+\.\d+/),
  'chat': async () => {
    const got = await chat()
    includes(got.message.content, answer)
    assert.equal(got.done_reason, 'stop')
  },
  'streaming': async () => includes((await collect(await chat({ stream: true }))).text, answer),
  'system': async () => includes((await chat({ messages: [{ role: 'system', content: system }, ...messages] })).message.content, answer),
  'thinking': async () => {
    const got = await chat({ think: true })
    includes(got.message.thinking, 'So ')
    includes(got.message.content, answer)
    includes((await collect(await chat({ think: true, stream: true }))).thinking, 'So ')
    assert(!(await chat({ think: false })).message.thinking)
  },
  'usage': async () => {
    for (const u of [await chat(), (await collect(await chat({ stream: true }))).done]) {
      positive(u.prompt_eval_count, 'prompt_eval_count')
      positive(u.eval_count, 'eval_count')
      positive(u.total_duration, 'total_duration')
    }
  },
  'stop': async () => assert.equal((await chat({ options: { ...options, stop: ['7'] } })).message.content.trim(), '5'),
  'logprobs': async () => {
    const got = await chat({ logprobs: true, top_logprobs: 2 })
    assert(got.logprobs.length > 0 && got.logprobs.every(t => t.logprob <= 0 && t.top_logprobs.length === 2))
  },
  'generate': async () => {
    includes((await client.generate({ model, prompt: question, system, options })).response, answer)
    includes((await collect(await client.generate({ model, prompt: question, options, stream: true }))).text, answer)
    const raw = await client.generate({ model, prompt: '<|im_start|>user\n' + question + '<|im_end|>\n<|im_start|>assistant\n', raw: true, options })
    includes(raw.response, answer)
  },
  'tools, whole': async () => {
    const got = await chat({ messages: ask, tools, options: { ...options, num_predict: 100 } })
    for (const call of got.message.tool_calls ?? []) validWeather(call.function.arguments)
    assert(got.message.content.length > 0 || got.message.tool_calls?.length > 0, 'neither a call nor content')
    await answered({ role: 'assistant', content: '', tool_calls: [{ function: { name: weather.name, arguments: { city: 'Paris', days: 1 } } }] })
  },
  'tools, streamed': async () => {
    const got = await collect(await chat({ messages: ask, tools, stream: true, options: { ...options, num_predict: 100 } }))
    for (const call of got.calls) validWeather(call.function.arguments)
    assert(got.text.length > 0 || got.calls.length > 0, 'neither a call nor content')
  },
  'format: schema': async () => {
    validSum((await chat({ format: sum })).message.content)
    validSum((await collect(await chat({ format: sum, stream: true }))).text)
    validSum((await client.generate({ model, prompt: question, format: sum, options })).response)
  },
  'format: json': async () => {
    const got = await chat({ format: 'json' })
    validObject(got.message.content, got.done_reason)
  },
  'embed': async () => {
    const input = [question, system, question]
    const got = await client.embed({ model, input })
    vectors(got.embeddings)
    positive(got.prompt_eval_count, 'prompt_eval_count')
    positive(got.total_duration, 'total_duration')
    const short = await client.embed({ model, input, dimensions: 32 })
    vectors(short.embeddings)
    assert.equal(short.embeddings[0].length, 32)
    assert.equal((await client.embeddings({ model, prompt: question })).embedding.length, got.embeddings[0].length)
  },
  'keep_alive, options that are not known': async () => {
    includes((await chat({ keep_alive: '10m', options: { ...options, num_ctx: 2048, no_such: 1 } })).message.content, answer)
    includes((await chat({ keep_alive: -1 })).message.content, answer)
  },
  'copy, create, delete': async () => {
    const names = async () => (await client.list()).models.map(m => m.name)
    const copied = 'copied:latest', created = 'sums:latest'
    const ask = name => client.chat({ model: name, messages, options: { num_predict: 400 } })
    assert.equal((await client.copy({ source: model, destination: copied })).status, 'success')
    assert((await names()).includes(copied), 'the copy is not listed')
    includes((await ask(copied)).message.content, answer)
    const steps = []
    for await (const step of await client.create({ model: created, from: model, system, parameters: { temperature: 0 }, stream: true })) steps.push(step.status)
    assert.equal(steps.at(-1), 'success')
    const got = await client.show({ model: created })
    assert.equal(got.system, system)
    includes(got.parameters, 'temperature')
    includes((await ask(created)).message.content, answer)
    for (const name of [copied, created]) assert.equal((await client.delete({ model: name })).status, 'success')
    assert(!(await names()).some(n => n === copied || n === created), 'what was deleted is listed')
    await assert.rejects(client.delete({ model: created }), e => e.status_code === 404)
  },
  'pull: an error': async () => {
    await assert.rejects(client.pull({ model: 'no such name' }), e => e.status_code === 400 && /name/.test(e.message))
  },
  'abort': async () => {
    const other = new Ollama({ host: base })
    const stream = await other.chat({ model, messages, stream: true, options: { num_predict: 4000, ignore_eos: true } })
    await assert.rejects(async () => { for await (const _ of stream) other.abort() }, e => e.name === 'AbortError')
  },
  'an image leaves a placeholder': async () => {
    includes((await chat({ messages: [{ ...messages[0], images: ['aGVsbG8='] }], options: { num_predict: 8 } })).message.role, 'assistant')
  },
  'errors': async () => {
    await assert.rejects(chat({ options: { temperature: 'hot' } }), e => e.status_code === 400 && /temperature/.test(e.message))
  },
})
