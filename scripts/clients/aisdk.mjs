// The libraries ai (Vercel's AI SDK) with @ai-sdk/openai-compatible and @ai-sdk/openai.
import { createOpenAI } from '@ai-sdk/openai'
import { createOpenAICompatible } from '@ai-sdk/openai-compatible'
import { APICallError, embed, embedMany, generateText, isStepCount, jsonSchema, Output, streamText, tool } from 'ai'
import { answer, assert, base, includes, model, positive, question, suite, sum, system, validObject, validSum, validWeather, vectors, weather } from './suite.mjs'

const compatible = createOpenAICompatible({
  name: 'uma', baseURL: base + '/v1', apiKey: 'none', includeUsage: true, supportsStructuredOutputs: true,
})
const openai = createOpenAI({ baseURL: base + '/v1', apiKey: 'none' })

// features are those of one provider's model.
function features(m, providerOptions) { // the options with which the provider asks for reasoning
  const ask = { model: m, prompt: question, temperature: 0, maxOutputTokens: 400, maxRetries: 0 }
  const run = more => generateText({ ...ask, ...more })
  // stream reads all parts of a stream.
  const stream = async more => {
    const got = { text: '', reasoning: '', calls: [], results: [] }
    for await (const p of streamText({ ...ask, onError() {}, ...more }).stream) {
      if (p.type === 'text-delta') got.text += p.text
      if (p.type === 'reasoning-delta') got.reasoning += p.text
      if (p.type === 'tool-call') got.calls.push(p)
      if (p.type === 'tool-result') got.results.push(p)
      if (p.type === 'error') throw p.error
      if (p.type === 'finish') Object.assign(got, { finish: p.finishReason, usage: p.totalUsage })
    }
    return got
  }
  const tools = { [weather.name]: tool({
    description: weather.description, inputSchema: jsonSchema(weather.parameters), execute: async () => 'clear',
  }) }
  const forced = {
    prompt: 'What is the weather in Paris?', tools, stopWhen: isStepCount(2),
    // The first step must call the tool, and the second answers with its result.
    prepareStep: ({ stepNumber }) => ({ toolChoice: stepNumber === 0 ? 'required' : 'none' }), maxOutputTokens: 600,
    // The model does not stop by itself after one call. Reasoning is not asked for: the provider would then leave the
    // temperature out, and at the default one a thought of this small model sometimes ends without an answer.
    providerOptions: { uma: { parallel_tool_calls: false }, openai: { parallelToolCalls: false } },
  }
  return {
    'chat': async () => includes((await run()).text, answer),
    'streaming': async () => {
      const got = await stream()
      includes(got.text, answer)
      assert.equal(got.finish, 'stop')
    },
    'system': async () => includes((await run({ instructions: system })).text, answer),
    'reasoning': async () => {
      includes((await run({ providerOptions })).reasoningText, 'So ')
      includes((await stream({ providerOptions })).reasoning, 'So ')
    },
    'usage': async () => {
      for (const { usage } of [await run(), await stream()]) {
        positive(usage.inputTokens, 'inputTokens')
        positive(usage.outputTokens, 'outputTokens')
      }
    },
    'stop': async () => assert.equal((await run({ stopSequences: ['7'] })).text.trim(), '5'),
    'tools, auto': async () => {
      const got = await run({ ...forced, prepareStep: undefined })
      for (const call of got.toolCalls) validWeather(call.input)
      assert(got.text.length > 0 || got.steps[0].toolCalls.length > 0, 'neither a call nor text')
    },
    'tools, required': async () => {
      const { steps } = await run(forced)
      validWeather(steps[0].toolCalls[0].input)
      assert.equal(steps[0].toolResults[0].output, 'clear')
      assert(steps[1].text.length > 0, 'the second turn has no text')
    },
    'tools, streamed': async () => {
      const got = await stream(forced)
      validWeather(got.calls[0].input)
      assert.equal(got.results[0].output, 'clear')
      assert(got.text.length > 0, 'the second turn has no text')
    },
    'json_schema': async () => {
      const output = Output.object({ schema: jsonSchema(sum) })
      validSum((await run({ output })).output)
      validSum((await stream({ output })).text)
    },
    'json_object': async () => {
      const got = await run({ output: Output.json() }).catch(e => e) // it throws where the answer is cut off
      validObject(got.text, got.finishReason)
    },
    'errors': async () => {
      await assert.rejects(run({ topP: 7 }), e => APICallError.isInstance(e) && e.statusCode === 400 && /top_p/.test(e.message))
    },
  }
}

// others are those of a provider's models for texts without roles and for embeddings.
const others = (completion, embedding) => ({
  'completions': async () => {
    const ask = { model: completion, prompt: question, temperature: 0, maxOutputTokens: 8, maxRetries: 0 }
    const { text, usage } = await generateText(ask)
    positive(usage.outputTokens, 'outputTokens')
    let streamed = ''
    for await (const t of streamText(ask).textStream) streamed += t
    assert(text.length > 0)
    assert.equal(streamed, text)
  },
  'embeddings': async () => {
    const { embeddings, usage } = await embedMany({ model: embedding, values: [question, system, question], maxRetries: 0 })
    vectors(embeddings)
    positive(usage.tokens, 'tokens')
    assert.deepEqual((await embed({ model: embedding, value: question, maxRetries: 0 })).embedding, embeddings[0])
  },
})

await suite('@ai-sdk/openai-compatible', {
  ...features(compatible(model)),
  ...others(compatible.completionModel(model), compatible.embeddingModel(model)),
})

const responses = features(openai.responses(model), { openai: { forceReasoning: true, reasoningSummary: 'auto' } })
// The Responses API has no stop sequences, and the provider warns instead of sending them.
delete responses['stop']
const chat = features(openai.chat(model))
// The provider's chat model reads no reasoning_content.
delete chat['reasoning']
const named = (name, f) => Object.fromEntries(Object.entries(f).map(([k, v]) => [`${name}: ${k}`, v]))
await suite('@ai-sdk/openai', {
  ...named('chat', chat),
  'chat: logprobs': async () => {
    const got = await generateText({
      model: openai.chat(model), prompt: question, maxOutputTokens: 400, maxRetries: 0,
      providerOptions: { openai: { logprobs: 2 } },
    })
    const { logprobs } = got.steps[0].providerMetadata.openai
    assert(logprobs.length > 0 && logprobs.every(t => t.logprob <= 0), JSON.stringify(got.steps[0].providerMetadata))
  },
  ...named('responses', responses),
  ...others(openai.completion(model), openai.embeddingModel(model)),
})
