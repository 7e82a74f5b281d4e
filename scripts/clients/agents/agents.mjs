// The agents: the npm package, the shell tool and its arguments, the configuration files below the home folder, and the
// command that runs one prompt and ends. docs/clients.md shows the same configurations.
const model = 'uma'

export const agents = {
  codex: {
    package: '@openai/codex',
    tool: 'exec_command',
    arguments: command => ({ cmd: command }),
    files: url => ({
      '.codex/config.toml': `model = "${model}"
model_provider = "uma"
model_context_window = 65536

[model_providers.uma]
name = "uma-serve"
base_url = "${url}/v1"
wire_api = "responses"
`,
    }),
    command: (url, prompt) => ['codex', 'exec', '--skip-git-repo-check', '--dangerously-bypass-approvals-and-sandbox', prompt],
  },
  opencode: {
    package: 'opencode-ai',
    tool: 'bash',
    arguments: command => ({ command, description: 'Prints a number' }),
    files: url => ({
      '.config/opencode/opencode.json': JSON.stringify({
        $schema: 'https://opencode.ai/config.json',
        model: `uma/${model}`,
        small_model: `uma/${model}`,
        autoupdate: false,
        share: 'disabled',
        permission: 'allow',
        provider: {
          uma: {
            npm: '@ai-sdk/openai-compatible', name: 'uma-serve',
            options: { baseURL: url + '/v1', apiKey: 'none' },
            models: { [model]: { name: model, tool_call: true, limit: { context: 65536, output: 4096 } } },
          },
        },
      }, null, 2),
    }),
    env: () => ({ OPENCODE_DISABLE_AUTOUPDATE: '1', OPENCODE_DISABLE_MODELS_FETCH: '1' }),
    command: (url, prompt) => ['opencode', 'run', '--model', `uma/${model}`, prompt],
  },
  pi: {
    package: '@earendil-works/pi-coding-agent',
    tool: 'bash',
    arguments: command => ({ command }),
    files: url => ({
      '.pi/agent/models.json': JSON.stringify({
        providers: {
          uma: {
            baseUrl: url + '/v1', api: 'openai-completions', apiKey: 'none',
            models: [{ id: model, contextWindow: 65536, maxTokens: 4096 }],
          },
        },
      }, null, 2),
    }),
    env: () => ({ PI_OFFLINE: '1' }),
    command: (url, prompt) => ['pi', '--provider', 'uma', '--model', model, '--print', prompt],
  },
  'qwen-code': {
    package: '@qwen-code/qwen-code',
    tool: 'run_shell_command',
    arguments: command => ({ command, is_background: false }),
    env: url => ({ OPENAI_BASE_URL: url + '/v1', OPENAI_API_KEY: 'none', OPENAI_MODEL: model }),
    command: (url, prompt) => ['qwen', '--auth-type', 'openai', '--model', model, '--yolo', prompt],
  },
  continue: {
    package: '@continuedev/cli',
    tool: 'Bash',
    arguments: command => ({ command }),
    files: url => ({
      '.continue/config.yaml': `name: uma-serve
version: 0.0.1
schema: v1
models:
  - name: uma
    provider: openai
    model: ${model}
    apiBase: ${url}/v1
    apiKey: none
    roles: [chat, edit, apply]
    capabilities: [tool_use]
    defaultCompletionOptions: {contextLength: 65536, maxTokens: 4096}
`,
    }),
    env: () => ({ CONTINUE_TELEMETRY_ENABLED: '0', CONTINUE_CLI_AUTO_UPDATED: '1' }),
    command: (url, prompt, home) => ['cn', '--config', home + '/.continue/config.yaml', '--auto', '--print', prompt],
  },
}
