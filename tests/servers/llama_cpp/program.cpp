// What llama.cpp itself makes of texts and ids, for tests:
//   program tokens MODEL TEXTS [begin]        ids of each text; texts end with a zero byte
//   program logprobs MODEL ROWS [ADAPTER]     log-probs of all but the first id of each row of ids
#include "llama.h"

#include <cmath>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

static void tokens(const llama_vocab * vocab, std::ifstream & in, bool begin) {
    std::string text;
    while (std::getline(in, text, '\0')) {
        std::vector<llama_token> ids(text.size() + 8);
        const int count = llama_tokenize(vocab, text.data(), text.size(), ids.data(), ids.size(), begin, true);
        for (int i = 0; i < count; i++) printf("%d ", ids[i]);
        printf("\n");
    }
}

static int logprobs(llama_model * model, std::ifstream & in, const char * adapter) {
    auto params = llama_context_default_params();
    params.n_ctx = params.n_batch = params.n_ubatch = 512;
    params.n_threads = params.n_threads_batch = 1;
    auto * context = llama_init_from_model(model, params);
    if (adapter) {
        auto * lora = llama_adapter_lora_init(model, adapter);
        float scale = 1.0f;
        if (!lora || llama_set_adapters_lora(context, &lora, 1, &scale)) return 3;
    }
    const int size = llama_vocab_n_tokens(llama_model_get_vocab(model));
    std::string line;
    while (std::getline(in, line)) {
        std::istringstream words(line);
        std::vector<llama_token> ids;
        for (int id; words >> id;) ids.push_back(id);
        llama_memory_clear(llama_get_memory(context), true);
        auto batch = llama_batch_init(ids.size(), 0, 1);
        for (size_t i = 0; i < ids.size(); i++) {
            batch.token[i] = ids[i];
            batch.pos[i] = i;
            batch.n_seq_id[i] = 1;
            batch.seq_id[i][0] = 0;
            batch.logits[i] = 1;
        }
        batch.n_tokens = ids.size();
        if (llama_decode(context, batch)) return 4;
        for (size_t i = 0; i + 1 < ids.size(); i++) {
            const float * logits = llama_get_logits_ith(context, i);
            double most = logits[0], sum = 0;
            for (int j = 1; j < size; j++) most = std::fmax(most, logits[j]);
            for (int j = 0; j < size; j++) sum += std::exp(logits[j] - most);
            printf("%.6f ", logits[ids[i + 1]] - most - std::log(sum));
        }
        printf("\n");
        llama_batch_free(batch);
    }
    return 0;
}

int main(int count, char ** words) {
    if (count < 4) return 1;
    const bool texts = std::string(words[1]) == "tokens";
    llama_backend_init();
    auto params = llama_model_default_params();
    params.vocab_only = texts;
    auto * model = llama_model_load_from_file(words[2], params);
    if (!model) return 2;
    std::ifstream in(words[3], std::ios::binary);
    if (!texts) return logprobs(model, in, count > 4 ? words[4] : nullptr);
    tokens(llama_model_get_vocab(model), in, count > 4);
    return 0;
}
