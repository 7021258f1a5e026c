# SPDX-License-Identifier: Apache-2.0
#
# suite.py DEVICE DONE: runs the cases of rdma-core's suite in /tests that the file DONE does not name yet, and appends to it
# each outcome as "CASE<tab>OUTCOME<tab>REASON". A case begins with the outcome "died": a process that a case ends leaves it
# there, and the next process goes on behind it. A case has five minutes.
import importlib.machinery
import os
import signal
import sys
import unittest

device, path = sys.argv[1:3]
sys.path.insert(0, '/tests')
sys.argv[1:] = ['--dev', device]
from args_parser import parser  # noqa: E402

parser.parse_args()
tests = importlib.machinery.SourceFileLoader('tests', '/tests/__init__.py').load_module()


def say(case, outcome, reason=''):
    with open(path, 'a') as f:
        f.write('%s\t%s\t%s\n' % (case.id(), outcome, ' '.join(str(reason).split())[:200]))


class Result(unittest.TestResult):
    def startTest(self, case):
        super().startTest(case)
        signal.alarm(300)
        say(case, 'died')

    def addSuccess(self, case):
        say(case, 'pass')

    def addSkip(self, case, reason):
        say(case, 'skip', reason)

    def addError(self, case, err):
        say(case, 'error', '%s: %s' % (err[0].__name__, err[1]))

    def addFailure(self, case, err):
        say(case, 'fail', '%s: %s' % (err[0].__name__, err[1]))

    def addExpectedFailure(self, case, err):
        say(case, 'pass')


def cases(suite):
    for each in suite:
        if isinstance(each, unittest.TestSuite):
            yield from cases(each)
        else:
            yield each


done = set()
if os.path.exists(path):
    with open(path) as f:
        done = {line.split('\t')[0] for line in f}
result = Result()
for module in tests.__test_modules__:
    suite = unittest.defaultTestLoader.loadTestsFromModule(module)
    left = unittest.TestSuite(c for c in cases(suite) if c.id() not in done)
    left.run(result)
os._exit(0)  # what a case has left behind may hang
