// The library @langchain/openai, over chat completions and over responses.
import { HumanMessage, SystemMessage, ToolMessage } from '@langchain/core/messages'
import { ChatOpenAI, OpenAI, OpenAIEmbeddings } from '@langchain/openai'
import { answer, assert, base, includes, model, positive, question, suite, sum, system, validObject, validSum, validWeather, vectors, weather } from './suite.mjs'

const make = (more = {}) => new ChatOpenAI({
  model, apiKey: 'none', configuration: { baseURL: base + '/v1' }, temperature: 0, maxTokens: 400, maxRetries: 0,
  streamUsage: true, ...more,
})
const tools = [{ type: 'function', function: weather }]
const ask = [new HumanMessage('What is the weather in Paris?')]

async function collect(stream) {
  let all
  for await (const chunk of stream) all = all ? all.concat(chunk) : chunk
  return all
}

// api has the options that choose an API; choices are the tool choices that the class sends: over responses it leaves out those that are words.
function features(api, choices) {
  const llm = make(api), short = make({ ...api, maxTokens: 100 })
  const answered = async m => {
    const results = m.tool_calls.map(c => new ToolMessage({ tool_call_id: c.id, content: 'clear' }))
    const turn = await short.bindTools(tools, { tool_choice: 'none' }).invoke([...ask, m, ...results])
    assert(turn.text.length > 0 || turn.tool_calls.length > 0, 'the second turn is empty')
  }
  return {
    'chat': async () => includes((await llm.invoke(question)).text, answer),
    'streaming': async () => includes((await collect(await llm.stream(question))).text, answer),
    'system': async () => includes((await llm.invoke([new SystemMessage(system), new HumanMessage(question)])).text, answer),
    'usage': async () => {
      for (const m of [await llm.invoke(question), await collect(await llm.stream(question))]) {
        positive(m.usage_metadata?.input_tokens, 'input_tokens')
        positive(m.usage_metadata?.output_tokens, 'output_tokens')
      }
    },
    'tools, auto': async () => {
      const m = await short.bindTools(tools).invoke(ask)
      for (const call of m.tool_calls) validWeather(call.args)
      assert(m.text.length > 0 || m.tool_calls.length > 0, 'neither a call nor text')
    },
    'tools, required': async () => {
      for (const tool_choice of choices) {
        const m = await llm.bindTools(tools, { tool_choice }).invoke(ask)
        validWeather(m.tool_calls[0].args)
        await answered(m)
      }
    },
    'tools, streamed': async () => {
      const m = await collect(await llm.bindTools(tools, { tool_choice: choices[0] }).stream(ask))
      validWeather(m.tool_calls[0].args)
      await answered(m)
    },
    'json_schema': async () => {
      validSum(await llm.withStructuredOutput({ title: 'sum', ...sum }, { method: 'jsonSchema', strict: true }).invoke(question))
    },
    'json_object': async () => {
      const json = llm.withConfig({ response_format: { type: 'json_object' } })
      const m = await json.invoke(question)
      const cut = m.response_metadata.finish_reason === 'length' || m.response_metadata.status === 'incomplete'
      validObject(m.text, cut ? 'length' : 'stop')
    },
    'errors': async () => {
      await assert.rejects(make({ ...api, topP: 7 }).invoke(question), e => e.status === 400 && /top_p/.test(e.message))
    },
    'structured output by a tool': async () => {
      validSum(await llm.withStructuredOutput({ title: 'sum', ...sum }, { method: 'functionCalling' }).invoke(question))
    },
  }
}

const named = (name, f) => Object.fromEntries(Object.entries(f).map(([k, v]) => [`${name}: ${k}`, v]))
await suite('@langchain/openai', {
  ...named('chat', features({}, ['required', weather.name])),
  'chat: stop': async () => assert.equal((await make({ stop: ['7'] }).invoke(question)).text.trim(), '5'),
  'chat: n': async () => {
    const { generations } = await make({ n: 3 }).generate([[new HumanMessage(question)]])
    assert.equal(generations[0].length, 3)
    for (const g of generations[0]) includes(g.text, answer)
  },
  'completions': async () => {
    const llm = new OpenAI({ model, apiKey: 'none', configuration: { baseURL: base + '/v1' }, temperature: 0, maxTokens: 8, maxRetries: 0 })
    const text = await llm.invoke(question)
    let streamed = ''
    for await (const t of await llm.stream(question)) streamed += t
    assert(text.length > 0)
    assert.equal(streamed, text)
  },
  'embeddings': async () => {
    const embed = new OpenAIEmbeddings({ model, apiKey: 'none', configuration: { baseURL: base + '/v1' }, maxRetries: 0 })
    const list = await embed.embedDocuments([question, system, question])
    vectors(list)
    assert.deepEqual(await embed.embedQuery(question), list[0])
  },
  'chat: logprobs': async () => {
    const m = await make({ logprobs: true, topLogprobs: 2 }).invoke(question)
    assert(m.response_metadata.logprobs.content.every(t => t.logprob <= 0 && t.top_logprobs.length === 2))
  },
  ...named('responses', features({ useResponsesApi: true }, [weather.name])),
  'responses: reasoning': async () => {
    const m = await make({ useResponsesApi: true, reasoning: { summary: 'auto' } }).invoke(question)
    const { reasoning } = m.additional_kwargs
    includes(JSON.stringify(reasoning), 'So ')
  },
})
