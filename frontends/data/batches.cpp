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

Batches::Batches(const DataSet& data, std::int64_t batch, std::optional<std::uint64_t> shuffle_seed, LastBatch last)
    : rows_(data.rows()), batch_(batch), seed_(shuffle_seed), last_batch_(last), first_row_(data.first_row), row_step_(data.row_step) {
  if (batch < 1) throw UserError(fmt::format("[data] a batch of {} rows; 1 is the least", batch));
  if (rows_ == 0) throw UserError("[data] there are no rows to make batches of");
  if (last == LastBatch::dropped && batch > rows_) throw UserError(fmt::format("[data] {} rows make no whole batch of {}, and shorter ones are dropped", rows_, batch));
  for (const auto& [name, tensor] : data.columns) columns_[name] = {{tensor.dtype(), {tensor.shape().begin() + 1, tensor.shape().end()}}, tensor.bytes().size() / static_cast<std::size_t>(rows_), tensor.raw(), nullptr};
  for (const auto& [name, column] : data.made) columns_[name] = {column.row, static_cast<std::size_t>(column.row.bytes()), nullptr, &column};
}

std::int64_t Batches::next_count() const { return last_batch_ == LastBatch::runs_on ? batch_ : std::min(batch_, rows_ - position_.position); }

/// The row at the position, which moves on by one.
RowKey Batches::next_row() {
  if (seed_ && order_epoch_ != position_.epoch) {
    order_ = shuffled_rows(rows_, *seed_, position_.epoch);
    order_epoch_ = position_.epoch;
  }
  const std::int64_t p = position_.position;
  const RowKey out{position_.epoch, seed_ ? order_[static_cast<std::size_t>(p)] : p};
  if (++position_.position == rows_) position_ = {position_.epoch + 1, 0};
  return out;
}

const std::map<std::string, HostTensor>& Batches::next() {
  auto& out = next_count() == batch_ ? full_ : last_;
  next_into(out);
  return out;
}

void Batches::next_into(std::map<std::string, HostTensor>& out) {
  const std::int64_t count = next_count();
  for (const auto& [name, column] : columns_) {
    HostTensor& tensor = out[name];
    Extents shape = column.row.shape;
    shape.insert(shape.begin(), count);
    if (tensor.dtype() != column.row.dtype || tensor.shape() != shape) tensor = HostTensor(column.row.dtype, shape);
  }
  const DataPosition begin = position_;
  try {
    for (std::int64_t i = 0; i < count; ++i) {
      const RowKey at = next_row();
      for (auto& [name, tensor] : out) {
        const Column& from = columns_.at(name);
        if (from.row_bytes == 0) continue;
        std::byte* to = tensor.raw() + static_cast<std::size_t>(i) * from.row_bytes;
        if (from.made) from.made->make({at.epoch, first_row_ + at.row * row_step_}, {to, from.row_bytes});
        else std::memcpy(to, from.stored + static_cast<std::size_t>(at.row) * from.row_bytes, from.row_bytes);
      }
    }
  } catch (...) {  // of a row that cannot be made: the next call tells of it again
    position_ = begin;
    throw;
  }
  drop_rest();
}

/// The position stands where a batch begins.
void Batches::drop_rest() {
  if (last_batch_ == LastBatch::dropped && rows_ - position_.position < batch_) position_ = {position_.epoch + 1, 0};
}

void Batches::seek(const DataPosition& position) {
  if (position.epoch < 0 || position.position < 0 || position.position >= rows_)
    throw UserError(fmt::format("[data] epoch {}, position {} is no place in a data set of {} rows; was it saved with other data?", position.epoch, position.position, rows_));
  position_ = position;
  drop_rest();
}

}  // namespace belfry
