// cpp17.cpp - cleave from C++17: handles that free themselves, failures as exceptions, a lambda that takes the text.
//
//   cpp17 FOLDER PROMPT
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

#include "cleave/cleave.h"

template <auto free> struct freed_by {
    template <class T> void operator()(T *handle) const { free(handle); }
};
using model_ptr = std::unique_ptr<clv_model, freed_by<clv_model_close>>;
using generator_ptr = std::unique_ptr<clv_generator, freed_by<clv_generator_free>>;
using generation_ptr = std::unique_ptr<clv_generation, freed_by<clv_generation_free>>;

// Calls make(&handle, ..., &err) and owns what it made; a failure is thrown with its message.
template <class Owner, class Make, class... Args> Owner made(Make make, Args... args)
{
    typename Owner::pointer handle = nullptr;
    clv_error err{};
    if (make(&handle, args..., &err) != CLV_OK)
        throw std::runtime_error(err.message);
    return Owner(handle);
}

static std::string write_text(const char *folder, const char *prompt)
{
    clv_generate_options options{};
    options.size = sizeof options;
    options.max_tokens = 50;
    options.on_text = [](void *, int64_t, const char *text, size_t size, int) {
        std::cerr << std::string_view(text, size) << std::flush;
        return 0;
    };
    const clv_model_options *usual = nullptr;
    const clv_generator_options *as_needed = nullptr;
    const char *const *prompts = &prompt;

    auto model = made<model_ptr>(clv_model_open, folder, usual);
    auto generator = made<generator_ptr>(clv_generator_new, model.get(), as_needed);
    auto texts = made<generation_ptr>(clv_generate, generator.get(), prompts, int64_t{1},
                                      static_cast<const clv_generate_options *>(&options));
    return clv_generation_text(texts.get(), 0, nullptr);
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        std::cerr << "usage: " << argv[0] << " FOLDER PROMPT\n";
        return 2;
    }
    try {
        std::cout << argv[2] << write_text(argv[1], argv[2]) << '\n';
    } catch (const std::exception &e) {
        std::cerr << argv[0] << ": " << e.what() << '\n';
        return 1;
    }
}
