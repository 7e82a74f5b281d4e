package launch

import (
	"fmt"
	"path/filepath"
	"strconv"
)

// Programs are all programs that can be launched.
var Programs = []Program{
	{Name: "claude", Binary: "claude", Install: "npm install -g @anthropic-ai/claude-code", plan: claude},
	{Name: "codex", Binary: "codex", Install: "npm install -g @openai/codex", plan: codex},
	{Name: "opencode", Binary: "opencode", Install: "npm install -g opencode-ai", plan: opencode},
	{Name: "kilo", Binary: "kilo", Install: "npm install -g @kilocode/cli", plan: kilo},
	{Name: "copilot", Binary: "copilot", Install: "npm install -g @github/copilot", plan: copilot},
	{Name: "kimi", Binary: "kimi", Install: "npm install -g @moonshot-ai/kimi-code", plan: kimi},
	{Name: "continue", Binary: "cn", Install: "npm install -g @continuedev/cli", plan: continueCLI},
	{Name: "pi", Binary: "pi", Install: "npm install -g @earendil-works/pi-coding-agent", plan: pi},
	{Name: "openclaw", Binary: "openclaw", Install: "https://openclaw.ai", plan: openclaw},
	{Name: "crush", Binary: "crush", Install: "npm install -g @charmland/crush", plan: crush},
	{Name: "cline", Binary: "cline", Install: "npm install -g cline", plan: cline},
	{Name: "qwen", Binary: "qwen", Install: "npm install -g @qwen-code/qwen-code", plan: qwen},
	{Name: "gemini", Binary: "gemini", Install: "npm install -g @google/gemini-cli", plan: gemini},
	{Name: "aider", Binary: "aider", Install: "pip install aider-chat", plan: aider},
	{Name: "gptme", Binary: "gptme", Install: "pip install gptme", plan: gptme},
	{Name: "open-webui", Binary: "open-webui", Install: "pip install open-webui", plan: openWebUI},
	{Name: "goose", Binary: "goose", Install: "https://block.github.io/goose", plan: goose,
		bare: []string{"session"}},
}

// claude is Claude Code. It takes a name that it does not know for a model with a window of 1,000,000 tokens, unless it
// is told. An API key makes it ask the user whether to use it; a token does not.
func claude(t *Target) Plan {
	p := Plan{Command: []string{"claude", "--model", t.Model}, Unset: []string{"ANTHROPIC_API_KEY"}, Env: []string{
		"ANTHROPIC_BASE_URL=" + t.URL, "ANTHROPIC_AUTH_TOKEN=" + t.Key, "ANTHROPIC_MODEL=" + t.Model}}
	for _, size := range []string{"OPUS", "SONNET", "HAIKU"} { // for agents and small tasks
		p.Env = append(p.Env, "ANTHROPIC_DEFAULT_"+size+"_MODEL="+t.Model)
	}
	p.Env = append(p.Env, "CLAUDE_CODE_MAX_CONTEXT_TOKENS="+strconv.Itoa(t.Context),
		"CLAUDE_CODE_AUTO_COMPACT_WINDOW="+strconv.Itoa(t.Context),
		"CLAUDE_CODE_MAX_OUTPUT_TOKENS="+strconv.Itoa(t.answer()), "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1")
	if !t.Thinks {
		p.Env = append(p.Env, "MAX_THINKING_TOKENS=0")
	}
	return p
}

// codex is OpenAI's Codex. "-c" overrides a key of its settings for one run.
func codex(t *Target) Plan {
	set := func(key, value string) []string { return []string{"-c", key + "=" + value} }
	p := Plan{Command: []string{"codex"}, Env: []string{"UMA_API_KEY=" + t.Key}}
	for _, kv := range [][2]string{
		{"model_provider", `"uma"`}, {"model", strconv.Quote(t.Model)},
		{"model_context_window", strconv.Itoa(t.Context)},
		{"model_providers.uma", fmt.Sprintf(`{name="uma-serve",base_url=%q,wire_api="responses",env_key="UMA_API_KEY"}`,
			t.URL+"/v1")},
	} {
		p.Command = append(p.Command, set(kv[0], kv[1])...)
	}
	return p
}

// opencode takes settings from a variable, beside those of its files.
func opencode(t *Target) Plan {
	return Plan{Command: []string{"opencode"}, Env: []string{"OPENCODE_CONFIG_CONTENT=" + t.opencode()}}
}

// kilo is Kilo Code's command line, which has opencode's settings.
func kilo(t *Target) Plan {
	return Plan{Command: []string{"kilo"}, Env: []string{"KILO_CONFIG_CONTENT=" + t.opencode()}}
}

// opencode returns opencode's settings.
func (t *Target) opencode() string {
	name := "uma/" + t.Model
	return line(object{"$schema": "https://opencode.ai/config.json", "model": name, "small_model": name,
		"provider": object{"uma": object{"npm": "@ai-sdk/openai-compatible", "name": "uma-serve",
			"options": object{"baseURL": t.URL + "/v1", "apiKey": t.Key},
			"models": object{t.Model: object{"name": t.Model, "tool_call": true, "reasoning": t.Thinks,
				"limit": object{"context": t.Context, "output": t.answer()}}}}}})
}

// copilot is GitHub's Copilot CLI. With a provider of the user it asks for no login; offline it asks GitHub nothing.
func copilot(t *Target) Plan {
	return Plan{Command: []string{"copilot"}, Env: []string{"COPILOT_PROVIDER_BASE_URL=" + t.URL + "/v1",
		"COPILOT_PROVIDER_TYPE=openai", "COPILOT_PROVIDER_API_KEY=" + t.Key, "COPILOT_MODEL=" + t.Model,
		"COPILOT_PROVIDER_MAX_PROMPT_TOKENS=" + strconv.Itoa(t.prompt()),
		"COPILOT_PROVIDER_MAX_OUTPUT_TOKENS=" + strconv.Itoa(t.answer()), "COPILOT_OFFLINE=true"},
		Unset: []string{"COPILOT_PROVIDER_BEARER_TOKEN", "COPILOT_PROVIDER_API_KEY_COMMAND",
			"COPILOT_PROVIDER_WIRE_API", "COPILOT_PROVIDER_MODEL_ID", "COPILOT_PROVIDER_WIRE_MODEL"}}
}

// kimi is Kimi Code. A model of the variables is the default one of the launch.
func kimi(t *Target) Plan {
	can := "tool_use"
	if t.Thinks {
		can += ",thinking"
	}
	return Plan{Command: []string{"kimi"}, Env: []string{"KIMI_MODEL_NAME=" + t.Model, "KIMI_MODEL_API_KEY=" + t.Key,
		"KIMI_MODEL_PROVIDER_TYPE=openai", "KIMI_MODEL_BASE_URL=" + t.URL + "/v1",
		"KIMI_MODEL_MAX_CONTEXT_SIZE=" + strconv.Itoa(t.Context),
		"KIMI_MODEL_MAX_OUTPUT_SIZE=" + strconv.Itoa(t.answer()), "KIMI_MODEL_CAPABILITIES=" + can,
		"KIMI_CODE_NO_AUTO_UPDATE=1"}}
}

// continueCLI is Continue's command line, cn. Its settings are YAML, of which JSON is a part.
func continueCLI(t *Target) Plan {
	f := t.own("continue.yaml", text(object{"name": "uma-serve", "version": "0.0.1", "schema": "v1",
		"models": []object{{"name": t.Model, "provider": "openai", "model": t.Model, "apiBase": t.URL + "/v1",
			"apiKey": t.Key, "roles": []string{"chat", "edit", "apply"}, "capabilities": []string{"tool_use"},
			"defaultCompletionOptions": object{"contextLength": t.Context, "maxTokens": t.answer()}}}}))
	return Plan{Command: []string{"cn", "--config", f.Path}, Own: []File{f}}
}

// pi takes a provider from an extension, which an argument names.
func pi(t *Target) Plan {
	provider := object{"name": "uma-serve", "baseUrl": t.URL + "/v1", "apiKey": t.Key, "api": "openai-completions",
		"models": []object{{"id": t.Model, "name": t.Model, "reasoning": t.Thinks, "input": []string{"text"},
			"cost":          object{"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0},
			"contextWindow": t.Context, "maxTokens": t.answer()}}}
	f := t.own("uma.ts", "export default function (pi) {\n  pi.registerProvider(\"uma\", "+line(provider)+");\n}\n")
	return Plan{Command: []string{"pi", "-e", f.Path, "--provider", "uma", "--model", t.Model}, Own: []File{f}}
}

// openclaw has one settings file.
func openclaw(t *Target) Plan {
	return Plan{Command: []string{"openclaw"}, Merge: []File{{
		filepath.Join(t.Home, ".openclaw", "openclaw.json"), text(object{
			"models": object{"mode": "merge", "providers": object{"uma": object{"baseUrl": t.URL + "/v1",
				"apiKey": t.Key, "api": "openai-completions", "models": []object{{"id": t.Model, "name": t.Model,
					"reasoning": t.Thinks, "input": []string{"text"},
					"cost":          object{"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0},
					"contextWindow": t.Context, "maxTokens": t.answer()}}}}},
			"agents": object{"defaults": object{"model": object{"primary": "uma/" + t.Model}}}})}}}
}

// crush has a settings file of the user.
func crush(t *Target) Plan {
	use := object{"provider": "uma", "model": t.Model}
	return Plan{Command: []string{"crush"}, Merge: []File{{filepath.Join(t.Config, "crush", "crush.json"), text(object{
		"providers": object{"uma": object{"name": "uma-serve", "type": "openai-compat", "base_url": t.URL + "/v1",
			"api_key": t.Key, "models": []object{{"id": t.Model, "name": t.Model, "context_window": t.Context,
				"default_max_tokens": t.answer(), "can_reason": t.Thinks}}}},
		"models": object{"large": use, "small": use}})}}}
}

// cline takes provider and model as arguments, and the address from its settings file alone.
func cline(t *Target) Plan {
	const provider = "openai-compatible"
	return Plan{Command: []string{"cline", "-P", provider, "-m", t.Model}, Merge: []File{{
		filepath.Join(t.Home, ".cline", "data", "settings", "providers.json"), text(object{
			"version": 1, "lastUsedProvider": provider,
			"providers": object{provider: object{"tokenSource": "manual",
				"updatedAt": "2026-01-01T00:00:00.000Z", "settings": object{"provider": provider,
					"apiKey": t.Key, "model": t.Model, "baseUrl": t.URL + "/v1"}}}})}}}
}

// qwen is Qwen Code. The file of system defaults is the lowest of its layers of settings.
func qwen(t *Target) Plan {
	f := t.own("qwen-defaults.json", text(object{"model": object{
		"generationConfig": object{"contextWindowSize": t.Context}}}))
	return Plan{Command: []string{"qwen", "--auth-type", "openai", "--model", t.Model}, Own: []File{f},
		Env: []string{"OPENAI_BASE_URL=" + t.URL + "/v1", "OPENAI_API_KEY=" + t.Key, "OPENAI_MODEL=" + t.Model,
			"QWEN_CODE_SYSTEM_DEFAULTS_PATH=" + f.Path}}
}

// geminiWindow is the context that gemini-cli assumes for every model, in tokens.
const geminiWindow = 1 << 20

// gemini is gemini-cli. It compresses a conversation at a share of the context that it assumes. It takes that share and
// the kind of login from its settings files alone: a login that the user has chosen there is stronger than a variable,
// and a file of system defaults must be root's.
func gemini(t *Target) Plan {
	share := float64(int(0.7*float64(t.Context)/geminiWindow*1e4)) / 1e4
	return Plan{Command: []string{"gemini", "--model", t.Model}, Merge: []File{{
		filepath.Join(t.Home, ".gemini", "settings.json"), text(object{
			"security": object{"auth": object{"selectedType": "gemini-api-key"}},
			"model":    object{"name": t.Model, "compressionThreshold": max(share, 0.0001)}})}},
		Env: []string{"GOOGLE_GEMINI_BASE_URL=" + t.URL, "GEMINI_API_KEY=" + t.Key, "GEMINI_MODEL=" + t.Model,
			"GEMINI_DEFAULT_AUTH_TYPE=gemini-api-key"},
		Unset: []string{"GEMINI_CLI_HOME", "GOOGLE_API_KEY", "GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_GENAI_USE_GCA"}}
}

// aider wants to know a model's sizes from a file.
func aider(t *Target) Plan {
	name := "openai/" + t.Model
	f := t.own("aider-models.json", text(object{name: object{"max_input_tokens": t.Context, "max_tokens": t.Context,
		"max_output_tokens": t.answer(), "litellm_provider": "openai", "mode": "chat",
		"input_cost_per_token": 0, "output_cost_per_token": 0}}))
	return Plan{Command: []string{"aider", "--model", name, "--weak-model", name, "--model-metadata-file", f.Path},
		Own: []File{f}, Env: []string{"OPENAI_API_BASE=" + t.URL + "/v1", "OPENAI_API_KEY=" + t.Key}}
}

// gptme calls a server of OpenAI's API "local", and assumes a context of 128,000 tokens unless its budget is less.
func gptme(t *Target) Plan {
	return Plan{Command: []string{"gptme", "--model", "local/" + t.Model}, Env: []string{
		"OPENAI_BASE_URL=" + t.URL + "/v1", "OPENAI_API_KEY=" + t.Key, "MODEL=local/" + t.Model,
		"GPTME_CONTEXT_BUDGET=" + strconv.Itoa(t.prompt()), "GPTME_MAX_TOKENS=" + strconv.Itoa(t.answer())}}
}

// openWebUI keeps settings in its database, which would override the environment.
func openWebUI(t *Target) Plan {
	return Plan{Command: []string{"open-webui", "serve"}, Env: []string{"OPENAI_API_BASE_URL=" + t.URL + "/v1",
		"OPENAI_API_KEY=" + t.Key, "ENABLE_OLLAMA_API=false", "DEFAULT_MODELS=" + t.Model,
		"TASK_MODEL_EXTERNAL=" + t.Model, "RAG_EMBEDDING_ENGINE=openai",
		"RAG_OPENAI_API_BASE_URL=" + t.URL + "/v1", "RAG_OPENAI_API_KEY=" + t.Key, "RAG_EMBEDDING_MODEL=" + t.Model,
		"ENABLE_PERSISTENT_CONFIG=false"}}
}

func goose(t *Target) Plan {
	return Plan{Command: []string{"goose"}, Env: []string{"GOOSE_PROVIDER=openai", "GOOSE_MODEL=" + t.Model,
		"GOOSE_CONTEXT_LIMIT=" + strconv.Itoa(t.Context), "OPENAI_HOST=" + t.URL, "OPENAI_API_KEY=" + t.Key,
		"OPENAI_BASE_PATH=v1/chat/completions"}}
}
