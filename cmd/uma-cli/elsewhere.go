package main

// elsewhere says what to do here instead of commands that other tools have: ollama, docker, llama.cpp, LM Studio.
var elsewhere = map[string]string{}

func init() {
	const (
		models  = "a model is a GGUF file: download one, then start the daemon with uma-serve -m FILE.gguf"
		files   = "uma-serve keeps no store of models, it serves the GGUF file of -m; delete or copy that file itself"
		serving = "one daemon serves one model; uma-cli info shows it"
		daemon  = "the daemon is a program of its own; start it with uma-serve -m FILE.gguf, or systemctl --user start uma-serve"
		end     = "end the daemon with systemctl --user stop uma-serve, or with Ctrl-C where it runs; Ctrl-C ends a single answer"
		running = "uma-cli metrics --watch shows what runs, uma-cli why --last 10 the newest requests, uma-cli kv what is cached"
		file    = "uma-cli model inspect FILE.gguf shows a model file, uma-cli info what is served"
		system  = "a model's instructions are a flag, uma-cli --system TEXT; its parameters are flags of chat and run"
		embed   = "the daemon answers with text only; embeddings are not served"
		logs    = "the daemon writes its log to standard error; as a service, journalctl --user -u uma-serve shows it"
		measure = "uma-bench measures the daemon, uma-cli run -v shows the speed of an answer"
		account = "there are no accounts: a model is a file, and the socket belongs to its user"
		prompt  = "uma-cli run PROMPT asks once, uma-cli alone opens a chat"
		options = "the options of the daemon are flags of uma-serve (uma-serve --help), those of an answer flags of run and chat"
		tokens  = "uma-cli run -v tells how many tokens a prompt and its answer have"
		cache   = "uma-cli kv shows the cached prefixes, uma-cli kv drop forgets one"
	)
	for sentence, names := range map[string][]string{
		models:  {"pull", "download", "get", "install", "import", "search", "add"},
		files:   {"rm", "remove", "delete", "cp", "copy", "uninstall", "prune"},
		serving: {"list", "ls", "models", "load", "unload", "use", "switch", "swap"}, daemon: {"serve", "server", "start", "launch", "daemon", "up"},
		end:     {"stop", "kill", "restart", "down", "shutdown", "quit", "exit"},
		running: {"ps", "top", "status", "stats", "queue", "watch", "monitor", "jobs"}, file: {"show", "inspect", "describe", "gguf"},
		system: {"create", "modelfile", "edit"}, embed: {"embed", "embedding", "embeddings"}, logs: {"log", "logs"},
		measure: {"bench", "benchmark"}, account: {"push", "signin", "signout", "login", "logout", "publish"},
		prompt:  {"ask", "prompt", "generate", "complete", "exec", "cli", "q", "query"},
		options: {"config", "set", "settings", "options", "env"}, tokens: {"tokenize", "count", "tokens"}, cache: {"cache", "slots", "clear", "flush"},
	} {
		for _, n := range names {
			elsewhere[n] = sentence
		}
	}
}
