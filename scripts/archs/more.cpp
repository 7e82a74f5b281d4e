// Writes random models of the architectures that llama.cpp's tests/test-llama-archs.cpp leaves out, each with the
// metadata that it lacks for them. Compiled by scripts/archs.sh against the tree that uma-serve is built on.
//
//   more DIR         writes DIR/ARCHITECTURE-more.gguf, and a line for each on standard output
//   more DIR NAME    one of them; scripts/archs.sh runs one at a time, as a failed assertion ends the process

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

// The models of Qwen that were given states of RWKV have one token shift, and heads for their values.
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
    {LLM_ARCH_RWKV6QWEN2,     false, shifted_once},
    {LLM_ARCH_ARWKV7,         false, shifted_once},
    {LLM_ARCH_GEMMA4,         false, [](llama_model_saver & ms) {
        ms.add_kv(LLM_KV_ATTENTION_SLIDING_WINDOW_PATTERN, std::vector<uint32_t>({1, 1, 1, 1, 0}));
        ms.add_kv(LLM_KV_ROPE_DIMENSION_COUNT_SWA, uint32_t(64));
    }},
    {LLM_ARCH_GEMMA3N,        false, none},
    {LLM_ARCH_BITNET,         false, none},
    {LLM_ARCH_APERTUS,        false, none},
    {LLM_ARCH_STEP35,         true,  none},
    {LLM_ARCH_PLM,            false, [](llama_model_saver & ms) {
        ms.add_kv(LLM_KV_ATTENTION_KEY_LENGTH, uint32_t(96));
        ms.add_kv(LLM_KV_ATTENTION_VALUE_LENGTH, uint32_t(64));
        ms.add_kv(LLM_KV_ATTENTION_KV_LORA_RANK, uint32_t(128));
        ms.add_kv(LLM_KV_ROPE_DIMENSION_COUNT, uint32_t(32));
    }},
    {LLM_ARCH_DEEPSEEK2OCR,   true,  none},
    {LLM_ARCH_CHAMELEON,      false, none},
    {LLM_ARCH_GRANITE_SWITCH, false, [](llama_model_saver & ms) {
        ms.add_kv(LLM_KV_ADAPTER_COUNT, uint32_t(2));
        ms.add_kv(LLM_KV_ADAPTER_LORA_RANK, uint32_t(8));
        ms.add_kv(LLM_KV_ADAPTER_ROUTER_GAIN, 10.0f);
        ms.add_kv(LLM_KV_ADAPTER_TOKEN_IDS_ACTIVATE, std::vector<int32_t>({3, 4}));
        ms.add_kv(LLM_KV_ADAPTER_TOKEN_IDS_SUBSTITUTE, std::vector<int32_t>({5, 6}));
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

int main(int argc, char ** argv) {
    if (argc < 2) {
        fprintf(stderr, "usage: %s DIR [ARCHITECTURE]; without a directory: %s --list\n", argv[0], argv[0]);
        return 2;
    }
    const std::string dir = argv[1];
    llama_log_set([](ggml_log_level level, const char * text, void *) {
        if (level == GGML_LOG_LEVEL_ERROR) {
            fputs(text, stderr);
        }
    }, nullptr);
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
