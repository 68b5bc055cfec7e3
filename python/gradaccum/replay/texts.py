"""All words of a replay, each in English and Vietnamese: titles of the stages, explanations, and the page's own labels."""
from __future__ import annotations

LANGUAGES = ("en", "vi")

STAGES = {
    "forward": ("Forward", "Truyền xuôi"),
    "loss": ("Loss", "Tính mất mát"),
    "backward": ("Backward", "Lan truyền ngược"),
    "accumulate": ("Accumulate", "Cộng dồn"),
    "normalize": ("Normalize", "Chia lấy trung bình"),
    "clip": ("Clip", "Cắt gradient"),
    "update": ("Update", "Cập nhật"),
    "clear": ("Clear", "Xóa bộ đệm"),
}

EXPLANATIONS = {
    "forward": (
        "{samples} of micro-batch {k} go through the network, and {output} numbers come out. Only the activations of {these} "
        "are kept in memory: the next micro-batch writes over them.",
        "{samples} của micro-batch {k} đi qua mạng và cho ra {output} con số. Bộ nhớ chỉ giữ các giá trị kích hoạt của "
        "{these}: micro-batch tiếp theo sẽ ghi đè lên chúng."),
    "loss": (
        "The loss says how wrong the network is on {these}: {loss} in total, {mean} on average. The total is what counts, because "
        "the window divides only once, at the end.",
        "Hàm mất mát cho biết mạng sai đến mức nào trên {these}: tổng cộng {loss}, trung bình {mean}. Ta giữ lại con số tổng, vì cả "
        "cửa sổ chỉ chia đúng một lần, ở cuối."),
    "backward.first": (
        "Backward finds out how the loss of {these} changes with each weight: that is the gradient. The buffer was empty, and now holds "
        "the gradient of the first micro-batch, with norm {after}.",
        "Lan truyền ngược tìm xem mất mát của {these} thay đổi thế nào theo từng trọng số: đó chính là gradient. Bộ đệm lúc trước còn "
        "trống, bây giờ chứa gradient của micro-batch đầu tiên, có chuẩn {after}."),
    "backward": (
        "The gradient of {these} is added to what the buffer holds already; nothing is overwritten. The norm of the buffer "
        "goes from {before} to {after}.",
        "Gradient của {these} được cộng dồn vào những gì bộ đệm đang có; không có gì bị ghi đè. Chuẩn của bộ đệm đi từ {before} đến {after}."),
    "backward.staged": (
        "Backward finds out how the loss of {these} changes with each weight, and writes it to the gradient of the micro-batch (norm {gradient}). "
        "The buffer of the window is not touched yet.",
        "Lan truyền ngược tìm xem mất mát của {these} thay đổi thế nào theo từng trọng số, rồi ghi vào gradient của micro-batch (chuẩn "
        "{gradient}). Bộ đệm của cửa sổ vẫn chưa thay đổi."),
    "accumulate": (
        "The window keeps the books: loss and weight of this micro-batch go into its sums, and the weight is now {weight_sum}. The gradient "
        "is in the buffer already, because backward adds straight into it.",
        "Cửa sổ ghi sổ: mất mát và trọng số mẫu của micro-batch này được cộng dồn vào các tổng, tổng trọng số mẫu giờ là {weight_sum}. Gradient "
        "đã nằm sẵn trong bộ đệm, vì lan truyền ngược cộng thẳng vào đó."),
    "accumulate.staged": (
        "The gradient of this micro-batch is added to the buffer of the window, number by number. The norm of the buffer "
        "goes from {before} to {after}.",
        "Gradient của micro-batch này được cộng dồn vào bộ đệm của cửa sổ, từng con số một. Chuẩn của bộ đệm đi từ {before} đến {after}."),
    "accumulate.rejected": (
        "Loss or gradient of this micro-batch is NaN or infinite, so the window leaves it out. It counts as a micro-batch, but neither in the "
        "sums nor in the divisor.",
        "Mất mát hoặc gradient của micro-batch này là NaN hay vô cực, nên cửa sổ bỏ nó ra ngoài. Nó vẫn được đếm là một micro-batch, nhưng không "
        "được tính vào các tổng và cũng không vào số chia."),
    "normalize": (
        "{all_in}, so the window divides once, by the weight that was really there: {weight_sum}. What remains is the mean gradient of {window}, "
        "as if they had run as one batch.",
        "{all_in}, nên cửa sổ chia đúng một lần, cho tổng trọng số mẫu thật sự đã có: {weight_sum}. Còn lại là gradient trung bình của "
        "{window}, như thể chúng đã chạy trong cùng một batch."),
    "normalize.mean_of_means": (
        "Each micro-batch was already divided by its own weight, and now the sum is divided by their number (reduction=\"mean_of_means\"). If "
        "the micro-batches are uneven, this is not the gradient of the full batch.",
        "Mỗi micro-batch đã được chia cho trọng số mẫu của riêng nó, và bây giờ tổng được chia cho số micro-batch (reduction=\"mean_of_means\"). "
        "Nếu các micro-batch không đều nhau, đây không phải là gradient của cả batch."),
    "normalize.sum": (
        "With reduction=\"sum\" the window divides by no weight. The gradient stays the sum over {window}.",
        "Với reduction=\"sum\", cửa sổ không chia cho trọng số mẫu. Gradient vẫn là tổng trên {window}."),
    "clip": (
        "The norm {norm} is above the limit {limit}, so the whole gradient is multiplied by {factor}. Its direction stays, "
        "only its length changes.",
        "Chuẩn {norm} vượt giới hạn {limit}, nên toàn bộ gradient được nhân với {factor}. Hướng giữ nguyên, chỉ độ dài thay đổi."),
    "clip.kept": (
        "The norm {norm} is within the limit {limit}, so nothing changes. The window is measured as a whole, never one micro-batch.",
        "Chuẩn {norm} nằm trong giới hạn {limit}, nên không có gì thay đổi. Ta đo cả cửa sổ, không bao giờ đo từng micro-batch."),
    "update": (
        "{optimizer} uses the gradient once and moves each weight a little, with learning rate {lr}. {micro_batches}, one update: the mean loss "
        "of the window was {loss}.",
        "{optimizer} dùng gradient một lần và dịch mỗi trọng số đi một chút, với tốc độ học {lr}. {micro_batches}, một lần cập nhật: mất mát "
        "trung bình của cửa sổ là {loss}."),
    "clear": (
        "The buffer is set to zero, and the next window can begin. The weights keep what they have learned.",
        "Bộ đệm được xóa về 0, và cửa sổ tiếp theo có thể bắt đầu. Các trọng số giữ lại những gì đã học."),
    "clear.weight": (
        "No update: all targets are ignored or have weight 0, so there is nothing to divide by. The buffer is set to zero, and the weights stay as "
        "they were.",
        "Không cập nhật: mọi nhãn đều bị bỏ qua hoặc có trọng số mẫu bằng 0, nên không có gì để chia. Bộ đệm được xóa về 0, và các trọng số "
        "giữ nguyên như cũ."),
    "clear.finite": (
        "No update: the gradient has NaN or infinity. The buffer is set to zero, and the weights stay as they were.",
        "Không cập nhật: gradient có NaN hoặc vô cực. Bộ đệm được xóa về 0, và các trọng số giữ nguyên như cũ."),
}

PHRASES = {                                                  # (singular, plural) in English, one form in Vietnamese
    "samples": ("{n} sample", "{n} samples", "{n} mẫu"),
    "these": ("this sample", "these {n} samples", "{n} mẫu này"),
    "window": ("one sample", "all {n} samples", "cả {n} mẫu"),
    "micro_batches": ("One micro-batch", "{n} micro-batches", "{n} micro-batch"),
    "all_in": ("The only micro-batch is in", "All {n} micro-batches are in", "Đã đủ {n} micro-batch"),
    "pieces": ("{n} micro-batch of up to {m}", "{n} micro-batches of up to {m}", "{n} micro-batch, mỗi phần tối đa {m} mẫu"),
}

PAGE = {
    "title": ("One window of gradient accumulation", "Một cửa sổ tích lũy gradient"),
    "subtitle": ("{samples} · {pieces} · one update with {optimizer}", "{samples} · {pieces} · một lần cập nhật với {optimizer}"),
    "stage": ("Stage", "Giai đoạn"),
    "of": ("of", "trên"),
    "micro_batch": ("Micro-batch", "Micro-batch"),
    "end": ("End", "Cuối"),
    "boundary": ("End of the window", "Cuối cửa sổ"),
    "play": ("Play", "Chạy"),
    "pause": ("Pause", "Dừng"),
    "step": ("Step", "Tiến"),
    "back": ("Back", "Lùi"),
    "keys": ("Keys: ← → step, space play or pause, Home and End", "Phím: ← → từng bước, phím cách để chạy hoặc dừng, Home và End"),
    "language": ("Language", "Ngôn ngữ"),
    "controls": ("Controls", "Điều khiển"),
    "in_window": ("in the window", "trong cửa sổ"),
    "jar": ("The window as a jar: {seen} of {samples} samples are in", "Cửa sổ như một chiếc bình: đã có {seen} trên {samples} mẫu"),
    "formula": ("Formula, with the numbers of this window", "Công thức, với các con số của cửa sổ này"),
    "followed": ("One number is followed through the window: {name}. Rounded to five digits.",
                 "Ta theo dõi một con số suốt cửa sổ: {name}. Làm tròn đến năm chữ số."),
    "numbers": ("Numbers of this stage", "Các con số của giai đoạn này"),
    "buffers": ("Buffers", "Các bộ đệm"),
    "inputs": ("What goes in", "Đầu vào"),
    "output": ("What comes out", "Đầu ra"),
    "guess": ("Below each image: what the network says; ✓ is right, ✗ is wrong.", "Dưới mỗi hình: câu trả lời của mạng; ✓ là đúng, ✗ là sai."),
    "right": ("right", "đúng"),
    "wrong": ("wrong, it is {y}", "sai, đáp án là {y}"),
    "shown": ("{shown} of {n} shown", "hiện {shown} trên {n}"),
    "weights": ("Weights", "Trọng số"),
    "gradient": ("Gradient buffer", "Bộ đệm gradient"),
    "micro_gradient": ("Gradient (micro-batch)", "Gradient (micro-batch)"),
    "buffer": ("Buffer (window)", "Bộ đệm (cửa sổ)"),
    "change": ("Change by the update", "Thay đổi khi cập nhật"),
    "norm": ("norm", "chuẩn"),
    "zero": ("all 0", "toàn 0"),
    "written": ("written now", "vừa ghi"),
    "largest": ("largest", "lớn nhất"),
    "gone_next": ("Not needed any more: the next micro-batch takes this memory.", "Không còn cần nữa: micro-batch tiếp theo sẽ dùng lại vùng nhớ này."),
    "gone": ("Not needed any more.", "Không còn cần nữa."),
    "not_pictured": ("{n} more parameters have norms but no pictures here.", "Còn {n} tham số khác có chuẩn nhưng không có hình ở đây."),
    "frozen": ("frozen", "đóng băng"),
    "scale": ("Colours (square-root scale)", "Thang màu (căn bậc hai)"),
    "scale_window": ("same for the whole window", "chung cho cả cửa sổ"),
    "scale_own": ("own for each picture", "riêng cho từng hình"),
    "negative": ("negative", "âm"),
    "positive": ("positive", "dương"),
    "growth": ("Norm of the gradient buffer after each stage; now {norm}", "Chuẩn của bộ đệm gradient sau mỗi giai đoạn; hiện tại là {norm}"),
    "bytes": ("Memory", "Bộ nhớ"),
    "in_use": ("holds numbers that are still needed", "đang giữ các con số còn cần đến"),
    "reserved": ("reserved for the run", "đã dành sẵn"),
    "total": ("in total", "tổng cộng"),
    "limit": ("limit", "giới hạn"),
    "no_limit": ("No limit was set.", "Không đặt giới hạn."),
    "full_batch": ("all {n} at once: {bytes}", "cả {n} mẫu cùng lúc: {bytes}"),
    "all_stages": ("All stages as a table", "Bảng tất cả các giai đoạn"),
    "wrote": ("wrote", "đã ghi"),
    "loss_sum": ("loss sum", "tổng mất mát"),
    "weight_sum": ("weight sum", "tổng trọng số mẫu"),
    "buffer_norm": ("buffer norm", "chuẩn bộ đệm"),
    "made_with": ("Recorded with gradaccum {version}. This page works offline.",
                  "Ghi lại bằng gradaccum {version}. Trang này dùng được khi không có Internet."),
    "kind.parameters": ("parameters", "tham số"),
    "kind.gradient_buffer": ("gradient buffer", "bộ đệm gradient"),
    "kind.micro_batch_gradient": ("gradient of the micro-batch", "gradient của micro-batch"),
    "kind.optimizer_state": ("optimizer state", "trạng thái bộ tối ưu"),
    "kind.activations": ("activations", "giá trị kích hoạt"),
    "kind.activation_gradients": ("activation gradients", "gradient của kích hoạt"),
    "kind.layer_state": ("layer state", "trạng thái của tầng"),
    "kind.packed_weights": ("packed weights", "trọng số đã sắp xếp lại"),
    "kind.workspace": ("workspace", "vùng nhớ tạm"),
    "kind.ema": ("moving average", "trung bình trượt"),
}


def phrase(name: str, language: str, n: int, **more) -> str:
    """A counted phrase: "1 sample", "32 samples", "32 mẫu"."""
    one, many, vietnamese = PHRASES[name]
    return (vietnamese if language == "vi" else one if n == 1 else many).format(n=whole_number(n, language), **more)


def whole_number(n: int, language: str) -> str:
    """12,345 in English, 12 345 (thin spaces) in Vietnamese, where point and comma would be read the other way round."""
    return f"{n:,}" if language == "en" else f"{n:,}".replace(",", "\u202f")
