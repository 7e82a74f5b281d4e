// agent.mjs NAME: run a coding agent against the daemon and write a JSON line of its turn. The agent talks to a reverse
// proxy, because the model has random weights: the proxy adds a grammar to requests with the agent's shell tool (one call
// of that tool with one command), and another to those that bring the call's result (one sentence). It changes nothing else of a request, and nothing of an answer. The turn is complete when the agent prints the sentence.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { mkdirSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs'
import http from 'node:http'
import { join } from 'node:path'
import { agents } from './agents.mjs'

const daemon = process.env.UMA_URL
const command = 'echo uma-$((6*7))' // only a shell that has run it writes uma-42
const proof = 'uma-42'
const limit = 240_000 // ms for the agent

const name = process.argv[2]
const agent = agents[name]
assert(agent, `unknown agent ${name}: use ${Object.keys(agents).join(', ')}`)

// call is a grammar (GBNF) of one call, in the form of a model whose template knows no tools.
const call = (name, args) =>
  'root ::= ' + JSON.stringify(`<tool_call>\n${JSON.stringify({ name, arguments: args })}\n</tool_call>`)
const sentence = 'The answer to everything.'

const state = { forced: false, called: '', sent: false, errors: [] }

// rewrite adds the grammars and returns what the request is: call, result or other.
function rewrite(body) {
  const history = JSON.stringify(body.messages ?? body.input ?? [])
  const tool = body.tools?.find(t => (t.function?.name ?? t.name) === agent.tool)
  if (!tool) return 'other'
  if (!history.includes(proof)) { // the first request, or the same again
    state.forced = true
    body.grammar = call(agent.tool, agent.arguments(command))
    return 'call'
  }
  state.sent = true
  body.grammar = 'root ::= ' + JSON.stringify(sentence)
  return 'result'
}

const front = http.createServer(async (req, res) => {
  const chunks = []
  for await (const c of req) chunks.push(c)
  let body = Buffer.concat(chunks), turn = 'other'
  if (req.method === 'POST' && /\/(chat\/completions|responses)$/.test(req.url)) {
    const request = JSON.parse(body)
    turn = rewrite(request)
    if (process.env.SHOW) {
      console.error(turn, request.tools?.map(t => t.function?.name ?? t.name ?? t.type).join(' '), body.length, 'bytes')
    }
    body = JSON.stringify(request)
  }
  const { host, 'content-length': _, connection, ...headers } = req.headers
  const ask = http.request(daemon + req.url, { method: req.method, headers: { ...headers, 'content-length': Buffer.byteLength(body) } }, got => {
    res.writeHead(got.statusCode, got.headers)
    let text = ''
    got.on('data', d => {
      text += d
      if (turn === 'call') state.called += d // an agent may leave before the end
      res.write(d)
    })
    got.on('end', () => {
      res.end()
      if (got.statusCode >= 400) state.errors.push(`${req.method} ${req.url}: ${got.statusCode} ${text}`)
      if (process.env.SHOW) console.error(req.method, req.url, turn, got.statusCode, text.slice(0, 600), '…', text.slice(-300))
    })
    got.on('error', () => res.destroy())
  })
  ask.on('error', e => { state.errors.push(e.message); res.destroy() })
  res.on('close', () => ask.destroy())
  ask.end(body)
})
await new Promise(ready => front.listen(0, '127.0.0.1', ready))
const url = `http://127.0.0.1:${front.address().port}`

// The agent has a home and a project without anything of the user's.
const home = mkdtempSync(join(process.cwd(), name + '-'))
const project = join(home, 'project')
mkdirSync(project)
for (const [path, text] of Object.entries(agent.files?.(url) ?? {})) {
  mkdirSync(join(home, path, '..'), { recursive: true })
  writeFileSync(join(home, path), text)
}
const [program, ...args] = agent.command(url, 'Run the command ' + command, home)
const child = spawn(program, args, {
  cwd: project, stdio: ['ignore', 'pipe', 'pipe'], detached: true,
  env: {
    PATH: process.env.PATH, HOME: home, TMPDIR: home, XDG_CONFIG_HOME: join(home, '.config'), XDG_DATA_HOME: join(home, '.local/share'),
    XDG_CACHE_HOME: join(home, '.cache'), XDG_STATE_HOME: join(home, '.local/state'), CI: '1', TERM: 'dumb', ...agent.env?.(url, home),
  },
})
let output = ''
child.stdout.on('data', d => { output += d })
child.stderr.on('data', d => { output += d })
const end = () => { try { process.kill(-child.pid) } catch { /* it has ended */ } }
const timer = setTimeout(() => { state.errors.push(`no end after ${limit / 1000} s`); end() }, limit)
const status = await new Promise(done => { child.on('close', done); child.on('error', e => { output += e; done(-1) }) })
clearTimeout(timer)
end()
front.close()
front.closeAllConnections()

let error = ''
if (!state.forced) error = `the agent never offered its tool ${agent.tool}`
else if (!state.called.includes(agent.tool)) error = 'no call of the tool: ' + state.called.slice(-300)
else if (!state.sent) error = 'the agent has not sent the result'
else if (!output.includes(sentence)) error = 'the agent has not printed the answer to the result'
else if (status !== 0) error = `the agent ended with status ${status}`
if (error) error += [...state.errors, output.slice(-300)].map(e => `; ${e}`).join('')
if (process.env.SHOW) console.error(output)
const { version } = JSON.parse(readFileSync(`node_modules/${agent.package}/package.json`))
console.log(JSON.stringify({
  client: agent.package, version, feature: `a turn with the tool ${agent.tool}: call, result, answer`, ok: error === '', error,
}))
