// Images and sounds: libmtmd cuts a picture or a recording into parts, puts the tokens of the model's family around them,
// and encodes each part as embeddings of the text model's width. Decoding files is Go's work: pixels and samples alone come
// here.
#ifndef UMA_IMAGES_H
#define UMA_IMAGES_H

#include "bridge.h"

#ifdef __cplusplus
extern "C" {
#endif

struct uma_images;

typedef struct {
    bool sees;     // it reads images
    bool together; // the rows of a part of an image see each other: they are decoded at once
    bool plane;    // positions have several dimensions
    bool grid;     // then: the rows of an image are a grid, as uma_images_facts_of_part has it

    int32_t sample_rate; // of the sounds that it reads, in samples a second; 0: it reads none

    // The device besides the processor that the projector is on, and what it takes there, in bytes; "" and 0 without one.
    char     device[64];
    uint64_t bytes;
} uma_images_facts;

// NULL on failure; the reason is in the log ring.
// device is used if gpu is set; NULL: the first one.
struct uma_images * uma_images_open(const char * projector, struct llama_model * model, bool gpu, ggml_backend_dev_t device, int32_t threads, int32_t flash_attn, uma_images_facts * facts);
void                uma_images_close(struct uma_images * im);

struct mtmd_input_chunks;

// Gives the calling thread, and those that it starts from now on, a low priority.
void uma_images_background(void);

// Cuts a picture, or a recording of n samples of one channel. NULL on failure.
struct mtmd_input_chunks * uma_images_cut(struct uma_images * im, const uint8_t * rgb, int32_t width, int32_t height);
struct mtmd_input_chunks * uma_images_cut_sound(struct uma_images * im, const float * samples, int64_t n);
void                       uma_images_free_cut(struct mtmd_input_chunks * parts);

// What a part is.
typedef struct {
    const int32_t * text;      // tokens; NULL for rows of embeddings
    int32_t         positions; // that it takes
    int32_t         width;     // of the grid of rows line by line, whose longer side it takes; 0: no grid, -1: another order of positions
    bool            together;  // its rows see each other
} uma_images_facts_of_part;

// Part i: its number of tokens, or -1 when there is no such part.
int32_t uma_images_part(struct uma_images * im, struct mtmd_input_chunks * parts, int32_t i, uma_images_facts_of_part * facts);

// Encodes part i into n floats at dst. One call at a time. false on failure.
bool uma_images_encode(struct uma_images * im, struct mtmd_input_chunks * parts, int32_t i, float * dst, int64_t n);

// llama_decode of n embeddings of the given width in sequence seq. places are their positions: n numbers for each dimension.
// together: each row sees all of them. Sets never of stop as the caller left it; the result is that of uma_decode.
int32_t uma_images_decode(struct llama_context * ctx, const float * rows, int32_t n, int32_t * places, int32_t seq, bool together, uma_stop * stop);

// uma_decode of rows [from, from + n) of b. Their positions in the results begin at 0.
int32_t uma_decode_rows(struct llama_context * ctx, struct llama_batch * b, int32_t from, int32_t n, uma_stop * stop);

#ifdef __cplusplus
}
#endif
#endif
