// The library openai: chat completions, completions and responses.
import OpenAI from 'openai'
import { answer, assert, base, includes, model, positive, question, suite, sum, system, validObject, validSum, validWeather, vectors, weather } from './suite.mjs'

const client = new OpenAI({ baseURL: base + '/v1', apiKey: 'none', maxRetries: 0 })
const messages = [{ role: 'user', content: question }]
// The model does not stop by itself after one call.
const one = { parallel_tool_calls: false }
const greedy = { model, messages, temperature: 0, max_tokens: 400 }
const tools = [{ type: 'function', function: weather }]
const ask = [{ role: 'user', content: 'What is the weather in Paris?' }]
const chat = (more = {}) => client.chat.completions.create({ ...greedy, ...more })

// collect joins the chunks of a stream as a program does that shows them.
async function collect(stream) {
  const got = { content: '', reasoning: '', calls: [], logprobs: 0 }
  for await (const chunk of stream) {
    if (chunk.usage) got.usage = chunk.usage
    const choice = chunk.choices[0]
    if (!choice) continue
    got.content += choice.delta.content ?? ''
    got.reasoning += choice.delta.reasoning_content ?? ''
    got.logprobs += choice.logprobs?.content?.length ?? 0
    for (const call of choice.delta.tool_calls ?? []) {
      const c = (got.calls[call.index] ??= { id: '', name: '', arguments: '', deltas: 0 })
      c.id += call.id ?? ''
      c.name += call.function?.name ?? ''
      c.arguments += call.function?.arguments ?? ''
      c.deltas++
    }
    if (choice.finish_reason) got.finish = choice.finish_reason
  }
  return got
}

// answered sends a call's result in a second turn.
async function answered(call) {
  const turn = await client.chat.completions.create({
    model, temperature: 0, max_tokens: 100, tools, tool_choice: 'none',
    messages: [...ask, { role: 'assistant', content: null, tool_calls: [call] },
      { role: 'tool', tool_call_id: call.id, content: '{"sky":"clear"}' }],
  })
  assert(['stop', 'length'].includes(turn.choices[0].finish_reason), turn.choices[0].finish_reason)
  assert(turn.choices[0].message.content.length > 0, 'the second turn has no content')
}

// offered is an answer to a question with tools that the model may call.
function offered(finish, content, calls) {
  if (calls?.length) return validWeather(calls[0].function?.arguments ?? calls[0].arguments)
  assert(['stop', 'length'].includes(finish), finish)
  assert(content.length > 0, 'neither a call nor content')
}

const rtools = [{ type: 'function', ...weather, strict: true }]
const respond = (more = {}) => client.responses.create({ model, input: question, temperature: 0, max_output_tokens: 400, ...more })

await suite('openai', {
  'list models': async () => {
    const ids = []
    for await (const m of client.models.list()) ids.push(m.id)
    assert.deepEqual(ids, [model])
    assert.equal((await client.models.retrieve(model)).id, model)
  },
  'chat': async () => includes((await chat()).choices[0].message.content, answer),
  'streaming': async () => {
    const got = await collect(await chat({ stream: true }))
    includes(got.content, answer)
    assert.equal(got.finish, 'stop')
  },
  'system and developer messages': async () => {
    for (const role of ['system', 'developer']) {
      const got = await chat({ messages: [{ role, content: system }, ...messages] })
      includes(got.choices[0].message.content, answer)
      assert(got.usage.prompt_tokens > (await chat()).usage.prompt_tokens, `a message of role ${role} adds no tokens`)
    }
  },
  'reasoning': async () => {
    includes((await chat()).choices[0].message.reasoning_content, 'So ')
    includes((await collect(await chat({ stream: true }))).reasoning, 'So ')
  },
  'usage': async () => {
    for (const u of [(await chat()).usage,
      (await collect(await chat({ stream: true, stream_options: { include_usage: true } }))).usage]) {
      positive(u.prompt_tokens, 'prompt_tokens')
      positive(u.completion_tokens, 'completion_tokens')
      positive(u.completion_tokens_details.reasoning_tokens, 'reasoning_tokens')
      assert.equal(u.total_tokens, u.prompt_tokens + u.completion_tokens)
    }
  },
  'stop': async () => {
    const { message, finish_reason } = (await chat({ stop: ['7'] })).choices[0]
    assert.equal(message.content.trim(), '5')
    assert.equal(finish_reason, 'stop')
  },
  'logprobs': async () => {
    const { content } = (await chat({ logprobs: true, top_logprobs: 3 })).choices[0].logprobs
    assert(content.length > 0 && content.every(t => t.logprob <= 0 && t.top_logprobs.length === 3))
    positive((await collect(await chat({ stream: true, logprobs: true }))).logprobs, 'streamed logprobs')
  },
  'n': async () => {
    const { choices } = await chat({ n: 3 })
    assert.deepEqual(choices.map(c => c.index), [0, 1, 2])
    for (const c of choices) includes(c.message.content, answer)
  },
  'tools, auto': async () => {
    const { message, finish_reason } = (await chat({ messages: ask, tools, tool_choice: 'auto', max_tokens: 100 })).choices[0]
    offered(finish_reason, message.content, message.tool_calls)
    const got = await collect(await chat({ messages: ask, tools, max_tokens: 100, stream: true }))
    offered(got.finish, got.content, got.calls)
    await answered({ id: 'call12345', type: 'function', function: { name: weather.name, arguments: '{"city":"Paris","days":1}' } })
  },
  'tools, required': async () => {
    for (const tool_choice of ['required', { type: 'function', function: { name: weather.name } }]) {
      const { message, finish_reason } = (await chat({ messages: ask, tools, tool_choice, ...one })).choices[0]
      assert.equal(finish_reason, 'tool_calls')
      assert.equal(message.tool_calls[0].function.name, weather.name)
      validWeather(message.tool_calls[0].function.arguments)
      await answered(message.tool_calls[0])
    }
  },
  'tools, streamed': async () => {
    const got = await collect(await chat({ messages: ask, tools, tool_choice: 'required', stream: true, ...one }))
    assert.equal(got.finish, 'tool_calls')
    assert(got.calls[0].deltas > 1, 'the arguments came in one piece')
    assert.equal(got.calls[0].name, weather.name)
    validWeather(got.calls[0].arguments)
    const { id, name, arguments: args } = got.calls[0]
    await answered({ id, type: 'function', function: { name, arguments: args } })
  },
  'tools, runTools': async () => {
    let given
    const runner = client.chat.completions.runTools({
      model, messages: ask, temperature: 0, max_tokens: 400, tool_choice: 'required', ...one,
      tools: [{ type: 'function', function: { ...weather, parse: JSON.parse, function: args => { given = args; return 'clear' } } }],
    }, { maxChatCompletions: 2 })
    await runner.done().catch(e => { if (!given) throw e })
    validWeather(given)
  },
  'json_schema': async () => {
    const response_format = { type: 'json_schema', json_schema: { name: 'sum', strict: true, schema: sum } }
    validSum((await chat({ response_format })).choices[0].message.content)
    validSum((await collect(await chat({ response_format, stream: true }))).content)
    validSum((await client.chat.completions.parse({ ...greedy, response_format })).choices[0].message.parsed ??
      (await chat({ response_format })).choices[0].message.content)
  },
  'json_object': async () => {
    const { message, finish_reason } = (await chat({ response_format: { type: 'json_object' } })).choices[0]
    validObject(message.content, finish_reason)
  },
  'completions': async () => {
    const one = await client.completions.create({ model, prompt: question, max_tokens: 8, temperature: 0 })
    assert.equal(one.usage.completion_tokens > 0, true)
    let text = ''
    for await (const c of await client.completions.create({ model, prompt: question, max_tokens: 8, temperature: 0, stream: true })) text += c.choices[0]?.text ?? ''
    assert.equal(text, one.choices[0].text)
  },
  'responses': async () => {
    const got = await respond({ instructions: system })
    includes(got.output_text, answer)
    assert.equal(got.status, 'completed')
    positive(got.usage.input_tokens, 'input_tokens')
    positive(got.usage.output_tokens_details.reasoning_tokens, 'reasoning_tokens')
    assert(got.output.some(i => i.type === 'reasoning'), 'no reasoning item')
  },
  'responses, streaming': async () => {
    let text = '', reasoning = '', done
    for await (const e of await respond({ stream: true })) {
      if (e.type === 'response.output_text.delta') text += e.delta
      if (e.type === 'response.reasoning_text.delta') reasoning += e.delta
      if (e.type === 'response.completed') done = e.response
    }
    includes(text, answer)
    includes(reasoning, 'So ')
    assert.equal(done.output_text ?? text, text)
  },
  'responses, previous_response_id': async () => {
    const first = await respond()
    const second = await respond({ input: 'Subtract 45 from 1234.', previous_response_id: first.id })
    includes(second.output_text, '1189')
    assert(second.usage.input_tokens > first.usage.input_tokens)
    assert.equal((await client.responses.retrieve(first.id)).id, first.id)
  },
  'responses, tools': async () => {
    const turn = { input: ask, tools: rtools, tool_choice: 'required', ...one }
    const whole = (await respond(turn)).output.find(i => i.type === 'function_call')
    validWeather(whole.arguments)
    let call, deltas = ''
    for await (const e of await respond({ ...turn, stream: true })) {
      if (e.type === 'response.function_call_arguments.delta') deltas += e.delta
      if (e.type === 'response.output_item.done' && e.item.type === 'function_call') call = e.item
    }
    validWeather(call.arguments)
    assert.equal(deltas, call.arguments)
    const last = await respond({
      input: [...ask, call, { type: 'function_call_output', call_id: call.call_id, output: 'clear' }],
      tools: rtools, tool_choice: 'none', max_output_tokens: 100,
    })
    assert(last.output_text.length > 0, 'the second turn has no text')
  },
  'responses, json_schema': async () => {
    const text = { format: { type: 'json_schema', name: 'sum', strict: true, schema: sum } }
    validSum((await respond({ text })).output_text)
    validSum((await client.responses.parse({ model, input: question, temperature: 0, text })).output_parsed)
  },
  'embeddings': async () => {
    const input = [question, system, question]
    const got = await client.embeddings.create({ model, input }) // the library asks for base64
    vectors(got.data.map(d => d.embedding))
    assert(got.usage.prompt_tokens > 0 && got.usage.prompt_tokens === got.usage.total_tokens)
    const float = await client.embeddings.create({ model, input: question, encoding_format: 'float' })
    assert.deepEqual(float.data[0].embedding.map(Math.fround), got.data[0].embedding)
    const tokens = await client.embeddings.create({ model, input: [[5, 6, 7], [8], [5, 6, 7]] })
    vectors(tokens.data.map(d => d.embedding))
    await assert.rejects(client.embeddings.create({ model, input, dimensions: 3 }), e => /dimensions/.test(e.message))
  },
  'errors': async () => {
    await assert.rejects(chat({ temperature: 'hot' }), e => e instanceof OpenAI.BadRequestError && /temperature/.test(e.message))
  },
})
