// A program whose locale has a decimal comma, as those of desktops do that call setlocale.
#pragma once

#include <clocale>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "files.h"

namespace belfry::test {

/// While it lives the program has one, where this machine has such or can make it.
class CommaLocale {
 public:
  CommaLocale() {
    for (const char* name : {"de_DE.UTF-8", "fr_FR.UTF-8", "de_DE.utf8"})
      if (!set_) set_ = std::setlocale(LC_ALL, name) != nullptr;
    const std::string made = (folder_ / "de_DE.UTF-8").string();
    if (set_ || std::system(("localedef -i de_DE -f UTF-8 '" + made + "' >/dev/null 2>&1").c_str()) != 0) return;
    setenv("LOCPATH", folder_.path().c_str(), 1);
    set_ = std::setlocale(LC_ALL, "de_DE.UTF-8") != nullptr;
    unsetenv("LOCPATH");
  }
  ~CommaLocale() { std::setlocale(LC_ALL, "C"); }
  CommaLocale(const CommaLocale&) = delete;
  CommaLocale& operator=(const CommaLocale&) = delete;
  explicit operator bool() const { return set_ && std::localeconv()->decimal_point == std::string(","); }

 private:
  Folder folder_;
  bool set_ = false;
};

}  // namespace belfry::test
