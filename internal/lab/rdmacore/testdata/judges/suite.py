# SPDX-License-Identifier: Apache-2.0
#
# suite.py DEVICE DONE: runs the cases of rdma-core's suite in /tests, and appends to the file DONE each outcome as
# "CASE<tab>OUTCOME<tab>REASON". The last line of a case holds. The first process writes "unrun" for every case. A case
# begins with "died": a process that a case ends leaves it there, and the next process goes on behind it. A case has five
# minutes.
#
# A process ends behind a case that fails, with the status 3, and collects no garbage: the collector destroys what a case
# leaves in any order, and libmlx5 crashes when a context goes before its objects.
#
# The suite draws attributes and flags at random, some of which a device refuses. Every run draws the same ones.
import gc
import importlib.machinery
import os
import random
import signal
import sys
import unittest

gc.disable()
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
        random.seed(case.id())
        self.outcome = 'died'
        say(case, 'died')

    def stopTest(self, case):
        super().stopTest(case)
        if self.outcome in ('error', 'fail'):
            os._exit(3)

    def end(self, case, outcome, reason=''):
        """The outcome of a case, or of a subtest, whose failure no later outcome of the case replaces."""
        if self.outcome not in ('error', 'fail'):
            self.outcome = outcome
            say(getattr(case, 'test_case', case), outcome, reason)

    def addSuccess(self, case):
        self.end(case, 'pass')

    def addSkip(self, case, reason):
        self.end(case, 'skip', reason)

    def addError(self, case, err):
        self.end(case, 'error', '%s: %s' % (err[0].__name__, err[1]))

    def addFailure(self, case, err):
        self.end(case, 'fail', '%s: %s' % (err[0].__name__, err[1]))

    def addSubTest(self, case, subtest, err):
        if err is not None:
            self.addError(case, err)

    def addExpectedFailure(self, case, err):
        self.end(case, 'pass')

    def addUnexpectedSuccess(self, case):
        self.end(case, 'fail', 'an unexpected success')


def cases(suite):
    for each in suite:
        if isinstance(each, unittest.TestSuite):
            yield from cases(each)
        else:
            yield each


suites = [unittest.defaultTestLoader.loadTestsFromModule(m) for m in tests.__test_modules__]
if not os.path.exists(path):
    for suite in suites:
        for case in cases(suite):
            say(case, 'unrun')
with open(path) as f:
    done = {line.split('\t')[0] for line in f if line.split('\t')[1] != 'unrun'}
result = Result()
for suite in suites:
    left = unittest.TestSuite(c for c in cases(suite) if c.id() not in done)
    left.run(result)
os._exit(0)  # what a case has left behind may hang
