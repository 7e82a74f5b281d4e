package main

// elsewhere has advice for commands that only other tools have, by command: ollama, docker, llama.cpp, LM Studio.
var elsewhere = map[string]string{}

func init() {
	const (
		models = "uma-cli pull NAME downloads a model, uma-cli models lists those on this machine; uma-serve -m " +
			"NAME serves one"
		files   = "uma-cli rm NAME deletes a model of uma-serve's models directory, uma-cli alias NAME TARGET names one"
		serving = "a request names its model, and the first one loads it; uma-cli load NAME loads it before, " +
			"uma-cli ps shows what is loaded"
		daemon = "start the daemon with uma-serve -m FILE.gguf, or systemctl --user start uma-serve"
		end    = "stop the daemon with systemctl --user stop uma-serve, or with Ctrl-C in its terminal; in uma-cli, " +
			"Ctrl-C cancels an answer"
		running = "uma-cli metrics --watch shows the daemon's activity, uma-cli why --last 10 the newest requests, " +
			"uma-cli kv the KV cache"
		file = "uma-cli show NAME shows a model, uma-cli model inspect FILE.gguf a file, uma-cli info the served " +
			"model"
		system = "set the system prompt with uma-cli --system TEXT; sampling parameters are flags of chat and run; " +
			"POST /api/create makes a model with its own"
		embed   = "uma-cli embed prints the embeddings of texts"
		logs    = "the daemon logs to standard error; for a service, journalctl --user -u uma-serve shows the log"
		measure = "uma-bench measures the daemon, uma-cli run -v shows the speed of an answer"
		account = "there are no accounts: models are files, and file permissions guard the socket"
		prompt  = "uma-cli run PROMPT asks one question, uma-cli alone opens a chat"
		options = "the daemon's options are flags of uma-serve (uma-serve --help); sampling options are flags of run " +
			"and chat"
		tokens = "uma-cli run -v prints the number of prompt and answer tokens"
		page   = "uma-cli open shows the daemon's web page: a chat and a live view of the server"
		cache  = "uma-cli kv shows the cached prefixes, uma-cli kv drop removes one"
	)
	for sentence, names := range map[string][]string{
		models:  {"download", "get", "install", "import", "search", "add"},
		files:   {"delete", "prune"},
		serving: {"use", "switch", "swap"}, daemon: {"serve", "server", "start", "daemon",
			"up"},
		end:     {"kill", "restart", "down", "shutdown", "quit", "exit"},
		running: {"top", "status", "stats", "queue", "watch", "monitor", "jobs"},
		file:    {"inspect", "describe", "gguf"},
		system:  {"create", "modelfile", "edit"}, embed: {"embedding", "embeddings", "vector", "vectors"},
		logs:    {"log", "logs"},
		measure: {"bench", "benchmark"}, account: {"push", "signin", "signout", "login", "logout", "publish"},
		prompt:  {"ask", "prompt", "generate", "complete", "exec", "cli", "q", "query"},
		options: {"config", "set", "settings", "options", "env"}, tokens: {"tokenize", "count", "tokens"},
		cache: {"cache", "slots", "clear", "flush"},
		page:  {"web", "ui", "webui", "browser", "dashboard"},
	} {
		for _, n := range names {
			elsewhere[n] = sentence
		}
	}
}
