#include <belfry/frontends/data/batches.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include <fmt/format.h>
#include <xxhash.h>

namespace belfry {

std::vector<std::int64_t> shuffled_rows(std::int64_t rows, std::uint64_t seed, std::int64_t epoch) {
  std::vector<std::int64_t> out(static_cast<std::size_t>(rows));
  std::iota(out.begin(), out.end(), 0);
  std::uint64_t draw = 0;
  // Fisher-Yates; a hash of (epoch, draw) is the random word, so that no generator's state is carried.
  auto below = [&](std::uint64_t n) {
    for (;;) {
      const std::uint64_t counter[2] = {static_cast<std::uint64_t>(epoch), draw++};
      unsigned __int128 product = static_cast<unsigned __int128>(XXH3_64bits_withSeed(counter, sizeof counter, seed)) * n;
      // The words that would favour some results are drawn again (Lemire).
      if (static_cast<std::uint64_t>(product) >= -n % n) return static_cast<std::uint64_t>(product >> 64);
    }
  };
  for (std::size_t i = out.size(); i > 1; --i) std::swap(out[i - 1], out[below(i)]);
  return out;
}

Batches::Batches(const DataSet& data, std::int64_t batch, std::optional<std::uint64_t> shuffle_seed, bool full)
    : rows_(data.rows()), batch_(batch), seed_(shuffle_seed), full_batches_(full) {
  if (batch < 1) throw UserError(fmt::format("[data] a batch of {} rows; 1 is the least", batch));
  if (rows_ == 0) throw UserError("[data] there are no rows to make batches of");
  for (const auto& [name, tensor] : data.columns) columns_[name] = {&tensor, tensor.bytes().size() / static_cast<std::size_t>(rows_)};
}

std::int64_t Batches::next_count() const { return full_batches_ ? batch_ : std::min(batch_, rows_ - position_.position); }

/// The row at the position, which moves on by one.
std::int64_t Batches::next_row() {
  if (seed_ && order_epoch_ != position_.epoch) {
    order_ = shuffled_rows(rows_, *seed_, position_.epoch);
    order_epoch_ = position_.epoch;
  }
  const std::int64_t p = position_.position;
  if (++position_.position == rows_) position_ = {position_.epoch + 1, 0};
  return seed_ ? order_[static_cast<std::size_t>(p)] : p;
}

const std::map<std::string, HostTensor>& Batches::next() {
  auto& out = next_count() == batch_ ? full_ : last_;
  next_into(out);
  return out;
}

void Batches::next_into(std::map<std::string, HostTensor>& out) {
  const std::int64_t count = next_count();
  for (const auto& [name, pair] : columns_) {
    HostTensor& tensor = out[name];
    Extents shape = pair.column->shape();
    shape[0] = count;
    if (tensor.dtype() != pair.column->dtype() || tensor.shape() != shape) tensor = HostTensor(pair.column->dtype(), shape);
  }
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t row = next_row();
    for (auto& [name, tensor] : out) {
      const Pair& from = columns_.at(name);
      if (from.row_bytes > 0) std::memcpy(tensor.raw() + static_cast<std::size_t>(i) * from.row_bytes, from.column->raw() + static_cast<std::size_t>(row) * from.row_bytes, from.row_bytes);
    }
  }
}

void Batches::seek(const DataPosition& position) {
  if (position.epoch < 0 || position.position < 0 || position.position >= rows_)
    throw UserError(fmt::format("[data] epoch {}, position {} is no place in a data set of {} rows; was it saved with other data?", position.epoch, position.position, rows_));
  position_ = position;
}

}  // namespace belfry
