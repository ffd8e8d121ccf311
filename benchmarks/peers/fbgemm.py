"""FBGEMM's CPU tables: fused look-up and row-wise AdaGrad over rows found by array index."""

import numpy as np
import torch
from torch import Tensor

from benchmarks.peers import import_peer


class FbgemmTables:
    """`num_tables` tables of `rows` x `dim` fp32, one feature each, pooled by sum, in host memory."""

    def __init__(self, num_tables: int, rows: int, dim: int, *, lr: float, eps: float) -> None:
        training = import_peer("fbgemm_gpu.split_table_batched_embeddings_ops_training")
        common = import_peer("fbgemm_gpu.split_table_batched_embeddings_ops_common")
        configs = import_peer("fbgemm_gpu.split_embedding_configs")
        spec = (rows, dim, common.EmbeddingLocation.HOST, training.ComputeDevice.CPU)
        self._tables = training.SplitTableBatchedEmbeddingBagsCodegen(
            [spec] * num_tables,
            optimizer=configs.EmbOptimType.EXACT_ROWWISE_ADAGRAD,
            learning_rate=lr,
            eps=eps,
            pooling_mode=common.PoolingMode.SUM,
            device=torch.device("cpu"),
        )

    def weights(self, table: int) -> Tensor:
        """[rows, dim], the table itself."""
        weights: Tensor = self._tables.split_embedding_weights()[table]
        return weights

    def set_weights(self, table: int, weights: np.ndarray) -> None:
        """Write all rows of a table."""
        self.weights(table).copy_(torch.from_numpy(weights))

    def __call__(self, ids: Tensor, offsets: Tensor) -> Tensor:
        """[B, num_tables * dim]; ids of table after table, `offsets` of their bags. Its backward updates the rows."""
        pooled: Tensor = self._tables(ids, offsets)
        return pooled
