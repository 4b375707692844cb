"""The last line of tools/test: cases that passed, failed and were skipped. Arguments: folders of Meson's logs."""

import json
import pathlib
import sys
import xml.etree.ElementTree as xml

passed = failed = skipped = 0
for folder in sys.argv[1:]:
    reports = list(pathlib.Path(folder).glob("testlog*.junit.xml"))
    if not reports:
        failed += 1  # the run left no report
    for log in pathlib.Path(folder).glob("testlog*.json"):  # the reports leave out programs that were ended
        for test in map(json.loads, log.read_text().splitlines()):
            if test["result"] in ("TIMEOUT", "INTERRUPT"):
                failed += 1
                print(f"failed: {test['name']}: {test['result']}", file=sys.stderr)
    for report in reports:
        for suite in xml.parse(report).getroot().iter("testsuite"):
            cases = list(suite.iter("testcase"))
            # A program that died before its report has errors and no cases.
            failed += max(int(suite.get("errors", 0)), 0) if not cases else 0
            for case in cases:
                if case.find("failure") is not None or case.find("error") is not None:
                    failed += 1
                    print(f"failed: {suite.get('name')} {case.get('name')}", file=sys.stderr)
                elif case.find("skipped") is not None:
                    skipped += 1
                else:
                    passed += 1
print(f"{passed} passed, {failed} failed, {skipped} skipped")
sys.exit(1 if failed or not passed else 0)
