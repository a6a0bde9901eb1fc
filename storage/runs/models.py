"""The model of a run: which columns, in which units, and the linear model on them. No pickles.

A model is a file of NumPy arrays (.npz) with a JSON header. It holds all that predicting needs: the
vocabulary and the idf of text, the names of the columns, and the coefficients.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from bigfs.cards import brief
from bigfs.evaluation.linear_model import LinearModel, map_rows
from bigfs.matrix import Matrix
from bigfs.storage.errors import RunError, explain_read_errors
from bigfs.storage.messages import strip
from bigfs.storage.scaling import Scaling
from bigfs.storage.words import token_pattern
from bigfs.types import AnyArray, IntArray

VERSION = 1
LINEAR = ("classes", "coef", "intercept", "scale", "target_mean")
# the settings that a rebuilt vectorizer knows
WEIGHTING = {"min_df", "max_df", "sublinear_tf", "hashing", "ngram_range", "stop_words", "remove"}


@dataclass(frozen=True)
class TextUnits:
    """How documents become tf-idf rows."""

    __repr__ = brief

    settings: dict[str, Any]
    terms: bytes | None
    idf: AnyArray

    @property
    def remove(self) -> Sequence[str]:
        """Parts of messages that are left out before terms are made."""
        return tuple(self.settings.get("remove") or ())

    def vectorizer(self) -> Any:
        """Return scikit-learn's `TfidfVectorizer` with this vocabulary and idf."""
        from sklearn.feature_extraction.text import TfidfVectorizer

        if self.terms is None:
            raise ValueError(
                "hashed columns have no vocabulary for scikit-learn: stage without hashing, or "
                "predict with `bigfs predict`"
            )
        if unknown := sorted(set(self.settings) - WEIGHTING):
            raise ValueError(f"scikit-learn's vectorizer is not known to take {', '.join(unknown)}")
        terms = self.terms.decode("utf-8", "surrogatepass").split("\n")[:-1]
        vectorizer = TfidfVectorizer(
            sublinear_tf=self.settings["sublinear_tf"],
            ngram_range=tuple(self.settings.get("ngram_range", (1, 1))),
            stop_words=self.settings.get("stop_words"),
            token_pattern=token_pattern().pattern,
            vocabulary=terms,
        )
        vectorizer.idf_ = self.idf
        del vectorizer.vocabulary_  # made again from the list, which takes less room in a file
        return vectorizer


@dataclass(frozen=True)
class NameUnits:
    """The names of all columns of a matrix, by which rows that come later are numbered."""

    __repr__ = brief

    settings: dict[str, Any]  # by_name: whether rows came by names, and hashing: to how many
    lines: bytes | None  # each followed by a newline. None where they are hashed


@dataclass(frozen=True)
class Model:
    """The linear model of a run.

    `Run.model` reads it. It takes the matrix of a store, an array, or texts.

    Attributes
    ----------
    linear : bigfs.evaluation.linear_model.LinearModel
        The coefficients.
    columns : ndarray of int of shape (m,)
        The chosen columns among the d of the corpus, in increasing order.
    names : list of str
        Their names.
    n_features : int
        Number of columns of the corpus, d.
    class_names : list of str
        Names of the classes by their codes. Empty for real targets.
    text : TextUnits or None
        How documents become rows. None for a corpus that is not text.
    units : Scaling or None
        How the rows of a source become those of the store. None if they are the same.
    naming : NameUnits or None
        How the names of entries and columns become columns of the store. None for text, and if the
        columns have no names.
    """

    __repr__ = brief

    linear: LinearModel
    columns: IntArray
    names: list[str]
    n_features: int
    class_names: list[str]
    text: TextUnits | None
    units: Scaling | None = None
    naming: NameUnits | None = None

    def predict(self, X: Any) -> Any:
        """Predict the target of samples.

        Parameters
        ----------
        X : Matrix, array-like or sparse matrix of shape (n, d), or sequence of str
            The samples: rows with the columns of the corpus, or documents if the corpus is text.
            Rows that are no Matrix have the values of the source, where the corpus was staged with
            `weight` or `scale`. A Matrix has those of the store.

        Returns
        -------
        ndarray of shape (n,) or csr_array of shape (n, n_labels)
            The names of the classes, real values, or an indicator of label sets.

        Raises
        ------
        ValueError
            X does not have the columns of the corpus, or holds texts and the corpus is not text.
        """
        if not isinstance(X, Matrix):
            X = X if hasattr(X, "shape") else list(X)
            if not sp.issparse(X) and len(X) and isinstance(X[0], str):
                text = self._require_text()
                X = text.vectorizer().transform([strip(document, text.remove) for document in X])
            self._require_width(X)
            X = Matrix.from_array(X if self.units is None else self.units.apply(sp.csr_array(X)))
        self._require_width(X)
        return self.named(map_rows(self.linear.predict, X, self.columns))

    def _require_width(self, X: Any) -> None:
        if X.shape[1] != self.n_features:
            raise ValueError(
                f"X has {X.shape[1]} features, but the model is expecting {self.n_features}"
            )

    def named(self, predicted: Any) -> Any:
        """Return predictions with the names of the classes in place of their codes."""
        if self.linear.kind != "class":
            return predicted
        return np.array(self.class_names, dtype=object)[predicted]

    def to_sklearn(self) -> Any:
        """Return a fitted scikit-learn pipeline, which needs nothing of bigfs.

        Returns
        -------
        sklearn.pipeline.Pipeline
            It takes documents if the corpus is text, and else rows with the columns of the corpus
            and the values of its source.
            It predicts the names of the classes.

        Raises
        ------
        ValueError
            The columns are hashed, or parts of messages were removed.
        """
        from sklearn.compose import ColumnTransformer
        from sklearn.pipeline import Pipeline

        picker = ColumnTransformer(
            [("selected", "passthrough", self.columns.tolist())], verbose_feature_names_out=False
        )
        picker.set_params(sparse_threshold=1.0)
        picker.fit(sp.csr_matrix((1, self.n_features)))
        names = np.array(self.class_names, dtype=np.str_) if self.class_names else None
        steps = [("columns", picker), ("model", self.linear.estimator(names))]
        if self.text is not None and self.text.remove:
            raise ValueError(
                f"scikit-learn's pipeline cannot remove {', '.join(self.text.remove)} of messages: "
                f"stage without remove, or predict with `bigfs predict`"
            )
        if self.text is not None:
            steps.insert(0, ("tfidf", self.text.vectorizer()))
        if self.units is not None:
            steps.insert(0, ("units", self.units.transformer()))
        return Pipeline(steps)

    def _require_text(self) -> TextUnits:
        if self.text is None:
            raise ValueError("the model's corpus is a matrix, so it can't take texts: give rows")
        return self.text

    def arrays(self) -> dict[str, AnyArray]:
        """Return the model as arrays, the header among them."""
        header = {
            "version": VERSION,
            "kind": self.linear.kind,
            "n_features": self.n_features,
            "names": self.names,
            "class_names": self.class_names,
            "judge": "logistic" if self.linear.is_logistic else "svm",
            "text": None if self.text is None else self.text.settings,
            "units": None if self.units is None else self.units.settings,
            "naming": None if self.naming is None else self.naming.settings,
        }
        arrays = {name: getattr(self.linear, name) for name in LINEAR}
        arrays |= {"columns": self.columns, "header": _bytes(json.dumps(header).encode())}
        if self.units is not None:
            arrays["factors"] = self.units.factors
        if self.naming is not None and self.naming.lines is not None:
            arrays["terms"] = _bytes(self.naming.lines)
        if self.text is not None:
            arrays["idf"] = self.text.idf
            if self.text.terms is not None:
                arrays["terms"] = _bytes(self.text.terms)
        return arrays


def read_model(file: Path) -> Model:
    """Read a model that `Run.write_model` wrote."""
    if not file.exists():
        raise RunError(
            f"{file.parent} has no model, or there was nothing to predict: `bigfs evaluate "
            f"{file.parent}` makes it if there is"
        )
    with explain_read_errors(file), file.open("rb") as opened, np.load(opened) as arrays:
        header = json.loads(arrays["header"].tobytes())
        newer = isinstance(header["version"], int) and header["version"] > VERSION
        if not newer:
            linear = LinearModel(header["kind"], *(arrays[name] for name in LINEAR))
            linear = linear._replace(is_logistic=header["judge"] == "logistic")
            text, naming, units = header["text"], header["naming"], header["units"]
            terms = arrays["terms"].tobytes() if "terms" in arrays else None
            if text is not None:
                text = TextUnits(text, terms, arrays["idf"])
            if naming is not None:
                naming = NameUnits(naming, terms)
            if units is not None:
                units = Scaling(units, arrays["factors"])
            columns, names = arrays["columns"], list(header["names"])
            if linear.coef.shape[1:] != columns.shape or len(names) != len(columns):
                raise ValueError("its columns and coefficients do not fit together")
            return Model(
                *(linear, columns, names, int(header["n_features"])),
                *(list(header["class_names"]), text, units, naming),
            )
    raise RunError(f"{file} was written by a newer bigfs: upgrade bigfs")


def _bytes(text: bytes) -> AnyArray:
    return np.frombuffer(text, dtype=np.uint8)
