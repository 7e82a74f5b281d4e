#include "llama.h"

int main() {
    llama_backend_init();
}
