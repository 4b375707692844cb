// Answers of a trained net: the folder of a run, pictures, the best class of each.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <span>
#include <string>

#include <belfry/belfry.h>
using namespace belfry;

/// One picture in a file or many in a folder: names of files and of classes to standard output.
void serve(const char* folder, const char* pictures) {
  const RunFolder run = read_run_folder(folder);  // graph, weights, names of classes, what becomes of pixels
  const Shape image = run.graph.type(run.graph.at("image")).shape;
  const PictureSize size{image[1].factor, image[2].factor, image[3].factor};

  Session session(run.graph, Single{.threads = 2});
  session.load_state(run.weights);
  constexpr std::size_t kBatch = 8;
  session.prepare({kBatch, 1}, Mode::infer);  // plans, kernels and memory of these batches, before the first question

  const auto files = picture_files({pictures});
  const std::string scores = session.default_fetches(Mode::infer).at(0);
  auto best = [&](std::span<const std::filesystem::path> some) {
    const Results answer = session.predict({{"image", read_pictures(some, size, run.pixels.value())}});
    const auto values = answer.data<float>(scores);
    const std::size_t classes = values.size() / some.size();
    for (std::size_t i = 0; i < some.size(); ++i) {
      const auto row = values.subspan(i * classes, classes);
      const auto k = static_cast<std::size_t>(std::max_element(row.begin(), row.end()) - row.begin());
      std::printf("%s: %s\n", some[i].filename().c_str(), k < run.classes.size() ? run.classes[k].c_str() : std::to_string(k).c_str());
    }
  };
  // Whole batches, then the rest one by one: each other size would be a program more.
  std::size_t first = 0;
  for (; first + kBatch <= files.size(); first += kBatch) best(std::span(files).subspan(first, kBatch));
  for (; first < files.size(); ++first) best(std::span(files).subspan(first, 1));
  if (std::fflush(stdout) != 0 || std::ferror(stdout)) throw UserError("the answers could not be written to the standard output; its disk may be full");
}

int main(int argc, char** argv) {
  if (argc < 3) return std::puts("serve RUN PICTURES: the best class of each picture in a file or folder"), 2;
  try {
    serve(argv[1], argv[2]);
  } catch (const std::exception& e) {  // UserError: what is wrong, where, and the way out
    return std::fprintf(stderr, "serve: %s\n", e.what()), 1;
  }
}
