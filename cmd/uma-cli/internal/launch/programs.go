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
	{Name: "pi", Binary: "pi", Install: "npm install -g @earendil-works/pi-coding-agent", plan: pi},
	{Name: "openclaw", Binary: "openclaw", Install: "https://openclaw.ai", plan: openclaw},
	{Name: "crush", Binary: "crush", Install: "npm install -g @charmland/crush", plan: crush},
	{Name: "cline", Binary: "cline", Install: "npm install -g cline", plan: cline},
	{Name: "qwen", Binary: "qwen", Install: "npm install -g @qwen-code/qwen-code", plan: qwen},
	{Name: "gemini", Binary: "gemini", Install: "npm install -g @google/gemini-cli", plan: gemini},
	{Name: "aider", Binary: "aider", Install: "pip install aider-chat", plan: aider},
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
	name := "uma/" + t.Model
	settings := object{"$schema": "https://opencode.ai/config.json", "model": name, "small_model": name,
		"provider": object{"uma": object{"npm": "@ai-sdk/openai-compatible", "name": "uma-serve",
			"options": object{"baseURL": t.URL + "/v1", "apiKey": t.Key},
			"models": object{t.Model: object{"name": t.Model, "tool_call": true, "reasoning": t.Thinks,
				"limit": object{"context": t.Context, "output": t.answer()}}}}}}
	return Plan{Command: []string{"opencode"}, Env: []string{"OPENCODE_CONFIG_CONTENT=" + line(settings)}}
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

// gemini is gemini-cli. It compresses a conversation at a share of the context that it assumes.
func gemini(t *Target) Plan {
	share := float64(int(0.7*float64(t.Context)/geminiWindow*1e4)) / 1e4
	f := t.own("gemini-defaults.json", text(object{
		"security": object{"auth": object{"selectedType": "gemini-api-key"}},
		"model":    object{"name": t.Model, "compressionThreshold": max(share, 0.0001)}}))
	return Plan{Command: []string{"gemini", "--model", t.Model}, Own: []File{f}, Env: []string{
		"GOOGLE_GEMINI_BASE_URL=" + t.URL, "GEMINI_API_KEY=" + t.Key, "GEMINI_MODEL=" + t.Model,
		"GEMINI_DEFAULT_AUTH_TYPE=gemini-api-key", "GEMINI_CLI_SYSTEM_DEFAULTS_PATH=" + f.Path},
		Unset: []string{"GOOGLE_API_KEY", "GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_GENAI_USE_GCA"}}
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
