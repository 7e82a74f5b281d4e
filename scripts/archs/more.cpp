// Writes random models of architectures: with llama.cpp's tests/test-llama-archs.cpp, which is compiled into it, and of
// those that it leaves out, each with the metadata that it lacks for them. scripts/archs.sh compiles it against the tree
// that uma-serve is built on.
//
//   more --archs …   what test-llama-archs does with these arguments
//   more DIR         writes DIR/ARCHITECTURE-more.gguf, and a line for each on standard output
//   more DIR NAME    one of them; scripts/archs.sh runs one at a time, as a failed assertion ends the process
//   more --list      their names
//   more --load      for each file named on standard input a line: "serves" where llama.cpp loads it and computes a token,
//                    else "refused"

#define main test_llama_archs_main
#include "test-llama-archs.cpp"
#undef main

#include "../src/llama-model.h"

#include <functional>

struct kind {
    llm_arch    arch;
    bool        moe;
    std::function<void(llama_model_saver & ms)> complete; // metadata beside that of get_gguf_ctx
};

static void encoder(llama_model_saver & ms) {
    ms.add_kv(LLM_KV_TOKENIZER_TOKEN_TYPE_COUNT, uint32_t(2));
    ms.add_kv(LLM_KV_ATTENTION_CAUSAL, false);
    ms.add_kv(LLM_KV_POOLING_TYPE, uint32_t(1)); // mean
}

static void rwkv(llama_model_saver & ms) {
    ms.add_kv(LLM_KV_WKV_HEAD_SIZE, uint32_t(64));
    ms.add_kv(LLM_KV_TOKEN_SHIFT_COUNT, uint32_t(2));
    ms.add_kv(LLM_KV_ATTENTION_DECAY_LORA_RANK, uint32_t(32));
    ms.add_kv(LLM_KV_ATTENTION_ICLR_LORA_RANK, uint32_t(32));
    ms.add_kv(LLM_KV_ATTENTION_VALUE_RESIDUAL_MIX_LORA_RANK, uint32_t(32));
    ms.add_kv(LLM_KV_ATTENTION_GATE_LORA_RANK, uint32_t(64));
    ms.add_kv(LLM_KV_RESCALE_EVERY_N_LAYERS, uint32_t(0));
    // No attention: the number of heads is that of the states.
    ms.add_kv(LLM_KV_ATTENTION_HEAD_COUNT, uint32_t(0));
    ms.add_kv(LLM_KV_ATTENTION_HEAD_COUNT_KV, uint32_t(0));
}

// A model of Qwen that was given states of RWKV has one token shift, and heads for its values.
static void shifted_once(llama_model_saver & ms) {
    rwkv(ms);
    ms.add_kv(LLM_KV_TOKEN_SHIFT_COUNT, uint32_t(1));
    ms.add_kv(LLM_KV_ATTENTION_HEAD_COUNT, uint32_t(4));
    ms.add_kv(LLM_KV_ATTENTION_HEAD_COUNT_KV, uint32_t(4));
}

static void none(llama_model_saver &) {}

static const kind kinds[] = {
    {LLM_ARCH_BERT,           false, encoder},
    {LLM_ARCH_MODERN_BERT,    false, [](llama_model_saver & ms) {
        encoder(ms);
        ms.add_kv(LLM_KV_ATTENTION_SLIDING_WINDOW_PATTERN, uint32_t(2));
    }},
    {LLM_ARCH_NOMIC_BERT,     false, encoder},
    {LLM_ARCH_NOMIC_BERT_MOE, true,  [](llama_model_saver & ms) {
        encoder(ms);
        ms.add_kv(LLM_KV_MOE_EVERY_N_LAYERS, uint32_t(2));
    }},
    {LLM_ARCH_NEO_BERT,       false, encoder},
    {LLM_ARCH_JINA_BERT_V2,   false, encoder},
    {LLM_ARCH_JINA_BERT_V3,   false, encoder},
    {LLM_ARCH_EUROBERT,       false, encoder},
    {LLM_ARCH_GEMMA_EMBEDDING, false, encoder},
    {LLM_ARCH_LLAMA_EMBED,    false, [](llama_model_saver & ms) {
        ms.add_kv(LLM_KV_ATTENTION_CAUSAL, false);
        ms.add_kv(LLM_KV_POOLING_TYPE, uint32_t(1));
    }},
    {LLM_ARCH_RWKV6,          false, rwkv},
    {LLM_ARCH_RWKV7,          false, rwkv},
    {LLM_ARCH_ARWKV7,         false, shifted_once},
    {LLM_ARCH_GEMMA4,         false, [](llama_model_saver & ms) {
        ms.add_kv(LLM_KV_ATTENTION_SLIDING_WINDOW_PATTERN, std::vector<uint32_t>({1, 1, 1, 1, 0}));
        ms.add_kv(LLM_KV_ROPE_DIMENSION_COUNT_SWA, uint32_t(64));
    }},
    {LLM_ARCH_GEMMA3N,        false, none},
    {LLM_ARCH_BITNET,         false, none},
    {LLM_ARCH_APERTUS,        false, none},
    {LLM_ARCH_STEP35,         true,  none},
    {LLM_ARCH_DEEPSEEK2OCR,   true,  none},
    {LLM_ARCH_CHAMELEON,      false, none},
    {LLM_ARCH_GRANITE_SWITCH, false, [](llama_model_saver & ms) {
        ms.add_kv(LLM_KV_ADAPTER_COUNT, uint32_t(2));
        ms.add_kv(LLM_KV_ADAPTER_LORA_RANK, uint32_t(8));
        ms.add_kv(LLM_KV_ADAPTER_ROUTER_GAIN, 10.0f);
        // An adapter is found by attention, as the mean of the numbers of those that the text activates, rounded. With
        // two of them in a text, their mean of 1.5 rounds to either. So a prompt's tokens activate one; 0 ends a text.
        const int32_t activate[] = {3, 0}, substitute[] = {5, 6};
        const LLM_KV key(LLM_ARCH_GRANITE_SWITCH);
        gguf_set_arr_data(ms.gguf_ctx, key(LLM_KV_ADAPTER_TOKEN_IDS_ACTIVATE).c_str(), GGUF_TYPE_INT32, activate, 2);
        gguf_set_arr_data(ms.gguf_ctx, key(LLM_KV_ADAPTER_TOKEN_IDS_SUBSTITUTE).c_str(), GGUF_TYPE_INT32, substitute, 2);
    }},
    {LLM_ARCH_T5,             false, [](llama_model_saver & ms) { ms.add_kv(LLM_KV_DECODER_START_TOKEN_ID, uint32_t(0)); }},
    {LLM_ARCH_T5ENCODER,      false, none},
};

// The metadata as it was given and the tensors that llama.cpp made for it: its own saver knows none of these kinds.
static void save(const kind & k, const std::string & dir) {
    gguf_context_ptr given = get_gguf_ctx(k.arch, k.moe);
    {
        llama_model_saver ms(k.arch, given.get());
        k.complete(ms);
    }
    auto made = get_model_and_ctx(given.get(), nullptr, 1, 0.1f, {});
    gguf_context_ptr out(gguf_init_empty());
    gguf_set_kv(out.get(), given.get());
    for (const auto & [name, tensor] : llama_internal_get_tensor_map(made.first.get())) {
        if (gguf_find_tensor(out.get(), name.c_str()) < 0) {
            gguf_add_tensor(out.get(), tensor);
        }
    }
    const std::string path = dir + "/" + llm_arch_name(k.arch) + "-more.gguf";
    if (!gguf_write_to_file(out.get(), path.c_str(), false)) {
        throw std::runtime_error("writing " + path + " failed");
    }
}

static bool serves(const std::string & path) {
    llama_model_params model_params = llama_model_default_params();
    llama_model_ptr model(llama_model_load_from_file(path.c_str(), model_params));
    if (!model) {
        return false;
    }
    llama_context_params params = llama_context_default_params();
    params.n_ctx = params.n_batch = params.n_ubatch = 256;
    params.n_threads = params.n_threads_batch = 1;
    llama_context_ptr ctx(llama_init_from_model(model.get(), params));
    if (!ctx) {
        return false;
    }
    llama_token token = 1;
    return llama_decode(ctx.get(), llama_batch_get_one(&token, 1)) == 0;
}

static void load_all() {
    char line[4096];
    while (fgets(line, sizeof(line), stdin)) {
        line[strcspn(line, "\n")] = 0;
        bool ok = false;
        try {
            ok = serves(line);
        } catch (const std::exception &) {
        }
        puts(ok ? "serves" : "refused");
        fflush(stdout);
    }
}

int main(int argc, char ** argv) {
    if (argc < 2) {
        fprintf(stderr, "usage: %s --archs … | DIR [ARCHITECTURE] | --list | --load\n", argv[0]);
        return 2;
    }
    const std::string dir = argv[1];
    if (dir == "--archs") {
        return test_llama_archs_main(argc - 1, argv + 1);
    }
    llama_log_set([](ggml_log_level level, const char * text, void *) {
        if (level == GGML_LOG_LEVEL_ERROR) {
            fputs(text, stderr);
        }
    }, nullptr);
    if (dir == "--load") {
        load_all();
        return 0;
    }
    int failed = 0;
    for (const kind & k : kinds) {
        const std::string name = llm_arch_name(k.arch);
        if (dir == "--list") {
            puts(name.c_str());
            continue;
        }
        if (argc > 2 && name != argv[2]) {
            continue;
        }
        try {
            save(k, dir);
            printf("%s\n", name.c_str());
        } catch (const std::exception & e) {
            fprintf(stderr, "%s: %s\n", name.c_str(), e.what());
            failed = 1;
        }
    }
    return failed;
}
