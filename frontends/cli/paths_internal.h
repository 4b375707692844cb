// Files and folders that options name: what is wrong with one is said before the work.
#pragma once

#include <string>

namespace CLI {
class Validator;
}

namespace belfry {

/// A folder or file that is there: UserError else, since files decide, not the command line alone. Of a link that leads nowhere it says so, and of a folder that may not be entered which one, why and the way out.
CLI::Validator is_data();
CLI::Validator is_file();    ///< the same, and no folder
CLI::Validator is_folder();  ///< the same, and no file
CLI::Validator is_checkpoint();  ///< a file; of a folder it names the latest in it
/// Nothing where such a file is there; `besides` is what may be named in its place, as in ", or a net".
void refuse_no_file(const std::string& path, const std::string& besides = {});

}  // namespace belfry
