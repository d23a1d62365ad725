"""Plugins for pytest: SciPy's own tests multiply by coded operators."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.sparse.linalg import LinearOperator, aslinearoperator, lobpcg
from scipy.sparse.linalg import _interface as interface

from scipy_suite.expected import EXACT, find_unmatched_patterns, mark_tests, short_name
from scipy_suite.operators import OperatorFactory

_PRODUCTS = "coded products"


def pytest_configure(config):
    os.fsync = lambda file: None  # stores are temporary
    if not config.getoption("numprocesses", None):  # otherwise workers run the tests
        config.pluginmanager.register(ReplacementPlugin())
    config.pluginmanager.register(ProductCounter())


class ReplacementPlugin:
    """Replace SciPy's operators by coded ones, and mark the expected results of tests."""

    def __init__(self) -> None:
        self._directory = TemporaryDirectory()
        self._factory = OperatorFactory(Path(self._directory.name))
        self._products_before = 0

    def pytest_sessionfinish(self):
        self._directory.cleanup()

    def pytest_collection_modifyitems(self, items):
        mark_tests(items)
        self._replace()

    def _replace(self) -> None:
        """Replace functions in all imported modules of SciPy, which include the tests."""
        for name, module in list(sys.modules.items()):
            if name.startswith("scipy.sparse.linalg"):
                if vars(module).get("aslinearoperator") is aslinearoperator:
                    module.aslinearoperator = self._aslinearoperator
                if name.endswith(".test_lobpcg"):
                    module.lobpcg = self._lobpcg
                if name.endswith(".test_interface"):
                    names = {**vars(interface), "LinearOperator": self._linear_operator()}
                    module.interface = SimpleNamespace(**names)

    def _aslinearoperator(self, A: Any) -> LinearOperator:
        return aslinearoperator(self._factory.convert(A))

    def _lobpcg(self, A: Any, X: Any, B: Any = None, M: Any = None, *args: Any, **options: Any):
        A, B, M = map(self._factory.convert, (A, B, M))
        return lobpcg(A, X, B, M, *args, **options)

    def _linear_operator(self) -> type:
        """Return a class like SciPy's that makes coded operators from functions and adjoints."""
        convert = self._factory.convert

        class Meta(type):
            def __call__(cls, *arguments: Any, **options: Any) -> Any:
                if cls is not ReplacedOperator:
                    return super().__call__(*arguments, **options)
                operator = LinearOperator(*arguments, **options)
                if len(operator.shape) != 2 or "rmatvec" not in options:
                    return operator
                try:
                    columns = [operator.matvec(unit) for unit in np.eye(operator.shape[1])]
                except AssertionError:  # a test's function that accepts only batches
                    return operator
                return convert(np.stack(columns, axis=1))

            def __instancecheck__(cls, instance: object) -> bool:
                return isinstance(instance, LinearOperator)

        class ReplacedOperator(LinearOperator, metaclass=Meta):
            pass

        return ReplacedOperator

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item):
        self._factory.start_test(item.path.name in EXACT)
        self._products_before = self._factory.products
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, call):
        report = yield
        if call.when == "teardown":
            self._factory.end_test()
            products = self._factory.products - self._products_before
            report.user_properties.append((_PRODUCTS, products))
        return report


class ProductCounter:
    """Count the tests of each module that multiply by coded operators; none is an error."""

    def __init__(self) -> None:
        self._products: dict[str, int] = {}  # by test

    def pytest_runtest_logreport(self, report):
        if report.when == "teardown":
            name = short_name(report.nodeid)
            self._products[name] = dict(report.user_properties).get(_PRODUCTS, 0)

    def _problems(self, config: pytest.Config) -> list[str]:
        if config.getoption("keyword"):
            return []
        unmatched = find_unmatched_patterns(self._products)
        problems = [f"expected.py: no test of this SciPy is {pattern}" for pattern in unmatched]
        uncoded = [module for module, (_, coded, _) in self._modules().items() if not coded]
        return problems + [f"{module}: no coded operator was used" for module in uncoded]

    def _modules(self) -> dict[str, tuple[int, int, int]]:
        """Return by module the numbers of tests, of tests with coded products, and of products."""
        modules: dict[str, tuple[int, int, int]] = {}
        for name, products in self._products.items():
            tests, coded, total = modules.get(module := name.partition("::")[0], (0, 0, 0))
            modules[module] = tests + 1, coded + (products > 0), total + products
        return modules

    def pytest_sessionfinish(self, session):
        if self._problems(session.config):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter, config):
        for module, (tests, coded, products) in self._modules().items():
            terminalreporter.write_line(
                f"{module}: {coded} of {tests} tests multiplied by coded operators, "
                f"{products} products"
            )
        for problem in self._problems(config):
            terminalreporter.write_line(problem, red=True)
