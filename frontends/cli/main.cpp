#include <belfry/frontends/cli/cli.h>

int main(int argc, char** argv) { return belfry::cli_main(argc, argv); }
