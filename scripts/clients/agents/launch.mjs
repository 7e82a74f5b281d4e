// launch.mjs PROGRAM: start a program with uma-cli launch and write a JSON line of its turn. As agent.mjs it stands
// between the program and the daemon, here on a socket, and adds a grammar to the two requests of a turn. Afterwards the
// home folder's settings must be what they were. The program is in PATH; UMA_URL is the daemon's address, UMA_CLI the
// path of uma-cli. Programs that call no tools have another proof: a file that they write, an answer of their server.
import assert from 'node:assert/strict'
import { execFileSync, spawn } from 'node:child_process'
import { existsSync, mkdirSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs'
import http from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

const command = 'printf uma-%s%s 4 2' // only a shell that has run it writes uma-42
const proof = 'uma-42'
const sentence = 'The answer to everything.'
const limit = Number(process.env.LIMIT ?? 240) * 1000 // ms for the program

// The programs: the package of npm or pip, the shell tool and its arguments, the arguments of one turn, variables, and
// a settings file that a user may have, with a member "mine", and a word that the launch
// replaces for its time (kept).
const programs = {
  claude: {
    package: '@anthropic-ai/claude-code', tool: 'Bash', arguments: command => ({ command, description: 'Prints a number' }),
    command: prompt => ['-p', prompt, '--dangerously-skip-permissions'], env: { IS_SANDBOX: '1' },
  },
  codex: {
    package: '@openai/codex', tool: 'exec_command', arguments: cmd => ({ cmd }),
    command: prompt => ['exec', '--skip-git-repo-check', '--dangerously-bypass-approvals-and-sandbox', prompt],
  },
  opencode: {
    package: 'opencode-ai', tool: 'bash', arguments: command => ({ command, description: 'Prints a number' }),
    command: prompt => ['run', prompt], env: { OPENCODE_DISABLE_AUTOUPDATE: '1', OPENCODE_DISABLE_MODELS_FETCH: '1' },
  },
  pi: {
    package: '@earendil-works/pi-coding-agent', tool: 'bash', arguments: command => ({ command }),
    command: prompt => ['--print', prompt], env: { PI_OFFLINE: '1' },
  },
  cline: {
    package: 'cline', tool: 'run_commands', arguments: command => ({ commands: [command] }),
    command: prompt => [prompt], settings: '.cline/data/settings/providers.json',
    before: '{"version":1,"modes":{},"providers":{"anthropic":{"settings":{"provider":"anthropic","apiKey":"mine"},' +
      '"updatedAt":"2026-01-01T00:00:00.000Z","tokenSource":"manual"}}}\n',
  },
  kilo: {
    package: '@kilocode/cli-linux-x64', tool: 'bash', arguments: command => ({ command, description: 'Prints a number' }),
    command: prompt => ['run', '--auto', prompt], env: { KILO_DISABLE_AUTOUPDATE: '1', KILO_DISABLE_MODELS_FETCH: '1' },
  },
  copilot: {
    package: '@github/copilot', tool: 'bash', arguments: command => ({ command, description: 'Prints a number' }),
    command: prompt => ['--allow-all-tools', '-p', prompt], env: { COPILOT_AUTO_UPDATE: 'false' },
  },
  kimi: {
    package: '@moonshot-ai/kimi-code', tool: 'Bash', arguments: command => ({ command }),
    command: prompt => ['-p', prompt],
  },
  continue: {
    package: '@continuedev/cli', tool: 'Bash', arguments: command => ({ command }),
    command: prompt => ['--auto', '-p', prompt], env: { CONTINUE_CLI_ENABLE_TELEMETRY: '0' },
  },
  openclaw: {
    package: 'openclaw', tool: 'exec', arguments: command => ({ command }),
    command: prompt => ['agent', '--local', '--agent', 'main', '--message', prompt],
    settings: '.openclaw/openclaw.json', before: '{"messages":{"responsePrefix":"mine"}}\n',
  },
  goose: {
    package: '@aaif/goose-binary-linux-x64', tool: 'shell', arguments: command => ({ command }),
    command: prompt => ['run', '--with-builtin', 'developer', '--text', prompt],
    settings: '.config/goose/config.yaml', before: 'GOOSE_MODE: auto\nGOOSE_MODEL: mine\n',
    env: { GOOSE_DISABLE_KEYRING: '1', GOOSE_TELEMETRY_ENABLED: 'false' },
  },
  gptme: {
    pip: 'gptme', tool: 'shell', arguments: command => ({ command }),
    command: prompt => ['--non-interactive', '--tool-format', 'tool', '--tools', 'shell', prompt],
  },
  aider: {
    pip: 'aider-chat', writes: ['answer.txt', proof], text: `answer.txt\n\`\`\`\n${proof}\n\`\`\`\n`,
    command: prompt => ['--yes-always', '--no-git', '--no-check-update', '--no-show-release-notes', '--no-analytics',
      '--no-pretty', '--no-gitignore', '--map-tokens', '0', '--message', prompt, 'answer.txt'],
    env: { LITELLM_LOCAL_MODEL_COST_MAP: 'true' },
  },
  'open-webui': {
    pip: 'open-webui', serves: true,
    command: (_, port) => ['--host', '127.0.0.1', '--port', String(port)],
    env: { WEBUI_AUTH: 'False', HF_HUB_OFFLINE: '1', OFFLINE_MODE: 'True', WEBUI_SECRET_KEY: 'test',
      ANONYMIZED_TELEMETRY: 'False', ENABLE_VERSION_UPDATE_CHECK: 'False' },
  },
  qwen: {
    package: '@qwen-code/qwen-code', tool: 'run_shell_command', arguments: command => ({ command, is_background: false }),
    command: prompt => ['--yolo', prompt],
  },
  gemini: {
    package: '@google/gemini-cli', tool: 'run_shell_command', arguments: command => ({ command }),
    command: prompt => ['--yolo', '--skip-trust', '-p', prompt],
    settings: '.gemini/settings.json', kept: 'oauth-personal',
    before: '{"security":{"auth":{"selectedType":"oauth-personal"}},"ui":{"theme":"mine"}}\n',
  },
}
const name = process.argv[2]
const program = programs[name]
assert(program, `unknown program ${name}: use ${Object.keys(programs).join(', ')}`)

// call is a grammar (GBNF) of one call, in the form of a model whose template knows no tools.
const call = (name, args) =>
  'root ::= ' + JSON.stringify(`<tool_call>\n${JSON.stringify({ name, arguments: args })}\n</tool_call>`)
const toolNames = body => (body.tools ?? []).flatMap(t =>
  t.functionDeclarations?.map(f => f.name) ?? [t.function?.name ?? t.name ?? t.type])
const state = { forced: false, sent: false, errors: [], requests: 0, ok: 0, models: [] }

// rewrite adds the grammars to the requests of a turn.
function rewrite(body) {
  if (!program.tool) {
    state.forced = state.sent = true
    body.grammar = 'root ::= ' + JSON.stringify(program.text ?? sentence)
    return
  }
  if (!toolNames(body).includes(program.tool)) return
  if (!JSON.stringify(body.messages ?? body.input ?? body.contents ?? []).includes(proof)) {
    state.forced = true
    body.grammar = call(program.tool, program.arguments(command))
    return
  }
  state.sent = true
  body.grammar = 'root ::= ' + JSON.stringify(sentence)
}

const socket = join(mkdtempSync(join(tmpdir(), 'uma')), 's')
const front = http.createServer(async (req, res) => {
  const chunks = []
  for await (const c of req) chunks.push(c)
  let body = Buffer.concat(chunks)
  if (req.method === 'POST' && /(\/(chat\/completions|responses|messages)|enerateContent)(\?.*)?$/.test(req.url)) {
    const request = JSON.parse(body)
    if (process.env.SHOW) console.error(req.url, body.length, 'bytes,', toolNames(request).join(' '))
    rewrite(request)
    body = JSON.stringify(request)
  }
  const { 'content-length': _, connection, ...headers } = req.headers
  state.requests++
  const ask = http.request(process.env.UMA_URL + req.url,
    { method: req.method, headers: { ...headers, host: new URL(process.env.UMA_URL).host, 'content-length': Buffer.byteLength(body) } },
    got => {
      res.writeHead(got.statusCode, got.headers)
      let text = ''
      got.on('data', d => { text += d; res.write(d) })
      got.on('end', () => {
        res.end()
        if (got.statusCode >= 400) state.errors.push(`${req.method} ${req.url}: ${got.statusCode} ${text.slice(0, 300)}`)
        else state.ok++
        if (process.env.SHOW) console.error(req.method, req.url, got.statusCode, text.slice(0, 400), '…', text.slice(-300))
      })
      got.on('error', () => res.destroy())
    })
  ask.on('error', e => { state.errors.push(e.message); res.destroy() })
  res.on('close', () => ask.destroy())
  ask.end(body)
})
await new Promise(ready => front.listen(socket, ready))

const home = mkdtempSync(join(process.cwd(), name + '-'))
const project = join(home, 'project')
mkdirSync(project)
if (program.settings) {
  mkdirSync(join(home, program.settings, '..'), { recursive: true })
  writeFileSync(join(home, program.settings), program.before)
}
const port = await new Promise(ready => { // free now
  const s = http.createServer().listen(0, '127.0.0.1', () => { const { port } = s.address(); s.close(() => ready(port)) })
})
const args = ['--socket', socket, 'launch', '--yes', name, ...program.command('Run the command ' + command, port)]
const child = spawn(process.env.UMA_CLI ?? 'uma-cli', args, {
  cwd: project, stdio: ['ignore', 'pipe', 'pipe'], detached: true,
  env: {
    PATH: process.env.PATH, HOME: home, TMPDIR: home, XDG_CONFIG_HOME: join(home, '.config'), XDG_DATA_HOME: join(home, '.local/share'),
    DATA_DIR: join(home, 'data'), XDG_CACHE_HOME: join(home, '.cache'), XDG_STATE_HOME: join(home, '.local/state'), CI: '1', TERM: 'dumb', ...program.env,
  },
})
let output = ''
child.stdout.on('data', d => { output += d })
child.stderr.on('data', d => { output += d })
const end = () => { try { process.kill(-child.pid) } catch { /* it has ended */ } }
const timer = setTimeout(() => { state.errors.push(`no end after ${limit / 1000} s`); end() }, limit)
// ask asks the program's own server.
async function ask(path, body, headers = {}) {
  const got = await fetch(`http://127.0.0.1:${port}${path}`, {
    method: body ? 'POST' : 'GET', body: body && JSON.stringify(body),
    headers: { 'content-type': 'application/json', ...headers },
  })
  const text = await got.text()
  assert(got.ok, `${path}: ${got.status} ${text.slice(0, 300)}`)
  return JSON.parse(text)
}
// use asks a server as its page does: the models, a chat. Then the server ends as with Ctrl-C.
async function use() {
  for (let there = false; !there && child.exitCode === null;) {
    there = await ask('/health').then(() => true, () => false)
    if (!there) await new Promise(ready => setTimeout(ready, 300))
  }
  try {
    const { token } = await ask('/api/v1/auths/signin', { email: '', password: '' })
    const auth = { authorization: 'Bearer ' + token }
    const models = (await ask('/api/models', undefined, auth)).data
    assert(models.length === 1, `models: ${models.map(m => m.id)}`)
    const got = await ask('/api/chat/completions', { model: models[0].id, stream: false,
      messages: [{ role: 'user', content: 'Hello' }] }, auth)
    output += got.choices[0].message.content
  } catch (e) {
    state.errors.push(e.message)
  }
  process.kill(child.pid, 'SIGINT')
}
if (program.serves) use()
const status = await new Promise(done => { child.on('close', done); child.on('error', e => { output += e; done(-1) }) })
clearTimeout(timer)
end()
front.close()
front.closeAllConnections()

const read = path => existsSync(path) ? readFileSync(path, 'utf8') : ''
const version = program.package ? JSON.parse(readFileSync(`node_modules/${program.package}/package.json`)).version
  : execFileSync('python', ['-c', `import importlib.metadata as m; print(m.version("${program.pip}"))`], // of its venv
    { encoding: 'utf8' }).trim()
let error = ''
if (!state.forced) error = `the program never offered its tool ${program.tool}`
else if (!state.sent) error = 'the program has not sent the result'
else if (program.writes && !read(join(project, program.writes[0])).includes(program.writes[1])) error = 'the file is not written'
else if (!program.writes && !output.includes(sentence)) error = 'the program has not printed the answer to the result'
else if (program.serves && state.errors.length) error = 'the server'
else if (status !== 0 && !program.serves) error = `the program ended with status ${status}`
else if (program.settings && existsSync(join(home, program.settings + '.uma-launch-backup'))) error = 'a backup is left'
else if (program.settings && !readFileSync(join(home, program.settings), 'utf8').includes('mine')) error = 'settings are lost'
else if (program.kept && !read(join(home, program.settings)).includes(program.kept)) error = `${program.kept} is lost`
else if (program.settings && readFileSync(join(home, program.settings), 'utf8').includes('http://127')) error = 'settings are left'
if (error) error += [...state.errors, output.slice(-300)].map(e => `; ${e}`).join('')
if (process.env.SHOW) console.error(output)
const shown = program.tool ? `a turn with the tool ${program.tool}: call, result, answer`
  : program.writes ? 'a file as the answer says' : 'the model is listed and answers'
console.log(JSON.stringify({
  client: program.package ?? program.pip, version, feature: `launch ${name}: ${shown}`,
  ok: error === '', error,
}))
