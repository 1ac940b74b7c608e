"""The scikit-learn face: estimators that train a federation inside one process.

PrivetClassifier(partition=3).fit(X, y)              # columns spread evenly over 3 parties
PrivetRegressor().fit([X_bank, X_telecom, X_shop], y)  # one table per party, label with the last
"""

from privet.estimators.base import FederatedEstimator
from privet.estimators.estimators import PrivetClassifier, PrivetRegressor

__all__ = ["FederatedEstimator", "PrivetClassifier", "PrivetRegressor"]
