// launch.mjs PROGRAM: start a program with uma-cli launch and write a JSON line of its turn. As agent.mjs it stands
// between the program and the daemon, here on a socket, and adds a grammar to the two requests of a turn. Afterwards the
// home folder's settings must be what they were.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { existsSync, mkdirSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs'
import http from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

const command = 'printf uma-%s%s 4 2' // only a shell that has run it writes uma-42
const proof = 'uma-42'
const sentence = 'The answer to everything.'
const limit = Number(process.env.LIMIT ?? 240) * 1000 // ms for the program

// The programs: the npm package, the shell tool and its arguments, the arguments of one turn, variables, and a settings
// file that a user may have.
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
  },
  qwen: {
    package: '@qwen-code/qwen-code', tool: 'run_shell_command', arguments: command => ({ command, is_background: false }),
    command: prompt => ['--yolo', prompt],
  },
  gemini: {
    package: '@google/gemini-cli', tool: 'run_shell_command', arguments: command => ({ command }),
    command: prompt => ['--yolo', '--skip-trust', '-p', prompt],
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
const state = { forced: false, sent: false, errors: [], requests: 0, ok: 0 }

// rewrite adds the grammars to the requests of a turn.
function rewrite(body) {
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
const before = '{"version":1,"modes":{},"providers":{"anthropic":{"settings":{"provider":"anthropic","apiKey":"mine"},' +
  '"updatedAt":"2026-01-01T00:00:00.000Z","tokenSource":"manual"}}}\n'
if (program.settings) {
  mkdirSync(join(home, program.settings, '..'), { recursive: true })
  writeFileSync(join(home, program.settings), before)
}
const args = ['--socket', socket, 'launch', '--yes', name, ...program.command('Run the command ' + command)]
const child = spawn(process.env.UMA_CLI ?? 'uma-cli', args, {
  cwd: project, stdio: ['ignore', 'pipe', 'pipe'], detached: true,
  env: {
    PATH: process.env.PATH, HOME: home, TMPDIR: home, XDG_CONFIG_HOME: join(home, '.config'), XDG_DATA_HOME: join(home, '.local/share'),
    XDG_CACHE_HOME: join(home, '.cache'), XDG_STATE_HOME: join(home, '.local/state'), CI: '1', TERM: 'dumb', ...program.env,
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
if (!state.forced) error = `the program never offered its tool ${program.tool}`
else if (!state.sent) error = 'the program has not sent the result'
else if (!output.includes(sentence)) error = 'the program has not printed the answer to the result'
else if (status !== 0) error = `the program ended with status ${status}`
else if (program.settings && existsSync(join(home, program.settings + '.uma-launch-backup'))) error = 'a backup is left'
else if (program.settings && !readFileSync(join(home, program.settings), 'utf8').includes('mine')) error = 'settings are lost'
else if (program.settings && readFileSync(join(home, program.settings), 'utf8').includes('http://127')) error = 'settings are left'
if (error) error += [...state.errors, output.slice(-300)].map(e => `; ${e}`).join('')
if (process.env.SHOW) console.error(output)
const { version } = JSON.parse(readFileSync(`node_modules/${program.package}/package.json`))
console.log(JSON.stringify({
  client: program.package, version, feature: `launch ${name}: a turn with the tool ${program.tool}: call, result, answer`,
  ok: error === '', error,
}))
