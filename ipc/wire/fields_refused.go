package wire

// refusedFields: an answer that ignores these is not the answer asked for.
var refusedFields = []field{
	// Tools and answers of a given form.
	refused("functions", "send \"tools\"", `[]`),
	refused("function_call", "send \"tool_choice\"", `"none"`, `"auto"`),
	refused("grammar_lazy", "a grammar holds from the first token of the answer on", `false`),
	refused("grammar_triggers", "a grammar holds from the first token of the answer on", `[]`),
	refused("structural_tag", "send \"tools\", or a schema"),
	refused("guided_whitespace_pattern", "the white space between JSON values is fixed"),
	// What the model would have to read or write besides text.
	refused("modalities", "this server writes text", `["text"]`),
	refused("audio", "this server writes text"),
	refused("images", "this server reads text", `[]`),
	refused("documents", "put them into a message", `[]`),
	refused("web_search_options", "this server searches nothing"),
	// Other prompts than asked for.
	refused("chat_template", "--chat-template sets it; send \"prompt\" for another form"),
	refused("template", "--chat-template sets it; send \"prompt\" for another form"),
	refused("system", "send a message of role \"system\"", `""`),
	refused("add_special_tokens", "a raw prompt begins with what the model wants there", `true`),
	refused("truncate_prompt_tokens", "a prompt is never cut"),
	refused("truncate", "a prompt is never cut", `false`),
	refused("n_keep", "see --context-shift", `0`, `-1`),
	refused("n_discard", "see --context-shift", `0`),
	refused("lora", "no adapters are loaded", `[]`),
	refused("options", "send its members as fields of the request", `{}`),
	// Several answers, other searches.
	refused("n", "send several requests", `1`),
	refused("n_cmpl", "send several requests", `1`),
	refused("best_of", "send several requests", `1`),
	refused("use_beam_search", "answers are sampled", `false`),
	refused("length_penalty", "answers are sampled", `1`),
	refused("logits_processors", "", `[]`),
	refused("min_keep", "use min_p or top_k", `0`, `1`),
	refused("top_a", "", `0`),
	refused("tfs_z", "", `1`),
	refused("adaptive_target", "", `-1`),
	// What would be in the answer.
	refused("echo", "the answer has no prompt in it", `false`),
	refused("return_tokens", "token events have token_id", `false`),
	refused("return_token_ids", "token events have token_id", `false`),
	refused("return_tokens_as_token_ids", "token events have token_id", `false`),
	refused("response_fields", "", `[]`),
	refused("include_stop_str_in_output", "the eos event has stop", `false`),
	refused("skip_special_tokens", "markers are never shown", `true`),
	refused("spaces_between_special_tokens", "markers are never shown", `true`),
	refused("preserved_tokens", "markers are never shown", `[]`),
	refused("detokenize", "the answer is text", `true`),
	refused("reasoning_format", "thinking always comes apart from the answer", `"auto"`, `"deepseek"`),
	refused("include_reasoning", "thinking always comes apart from the answer", `true`),
}

// ignoredFields do not change an answer: the client's identity, caching and storage hints, extra output.
var ignoredFields = ignored("user", "store", "safety_identifier", "prompt_cache_key", "prompt_cache_retention",
	"prediction", "stream_options", "request_id", "session_id", "cache_salt", "cache_prompt", "id_slot", "slot_id",
	"n_cache_reuse", "timings_per_token", "verbose", "sse_ping_interval", "backend_sampling", "guided_decoding_backend",
	"speculative.n_min", "speculative.p_min", "speculative.type", "speculative.types", "adaptive_decay", "keep_alive",
	"usage", "reasoning_control", "t_max_prompt_ms",
	// ollama's options of loading a model, which is loaded; front ends send them to every API
	"num_ctx", "num_batch", "num_gpu", "main_gpu", "use_mmap", "use_mlock", "num_thread", "numa", "low_vram", "f16_kv",
	"vocab_only", "num_keep", "penalize_newline", "logits_all", "embedding_only")
